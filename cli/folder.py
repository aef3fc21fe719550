"""A run's folder: made for one run, and gone again if nothing came of it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import EnvironmentFault

_OF_A_RUN = ("summary.json", "events.jsonl", "ledger.jsonl")


@contextmanager
def run_folder(wanted: Path | None, name: str) -> Iterator[Path]:
    """Makes the folder that is wanted, or runs/NAME-TIME; removes it if it is left empty.

    Raises:
        EnvironmentFault: it holds a run already, or cannot be made.
    """
    folder = (wanted or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}").resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        used = any((folder / file).exists() for file in _OF_A_RUN)
    except OSError as failed:
        raise EnvironmentFault(f"{folder} cannot be made: {failed.strerror}", hint="choose another --out") from None
    if used:
        raise EnvironmentFault(f"{folder} holds a run already", hint="choose another --out, or remove it")
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):  # it is not empty: there was a run
            folder.rmdir()
