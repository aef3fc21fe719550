"""`colonnade card`: writes the model card of a run."""

from __future__ import annotations

from pathlib import Path

from colonnade.reports.card import write_card
from colonnade.reports.console.screen import out as console


def card(folder: Path, out: Path | None) -> None:
    console.print(f"card: {write_card(folder, out)}", markup=False, soft_wrap=True)
