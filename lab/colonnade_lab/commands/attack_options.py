"""Options of the attacks, and the cells that their tables share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from colonnade_lab.attacks.bounds import clopper_pearson


@dataclass(frozen=True)
class Options:
    """Options of an attack.

    Args:
        party: the one whose capture is attacked; "" for all.
        known: share of the training rows whose features the attacker of an inversion has.
        epochs: newest captured epochs that are used; 0 for all, combined.
        seed: of all that an attacker draws.
        shadows: federations that the attacker of a membership simulates.
        canaries: of an audit.
        labels: that the party of a completion knows.
        attacker: on columns; `all` for each.
        starts: that the first of these tries.
        rounds: the first ones that these see; 0 for all.
    """

    party: str = ""
    known: float = 0.2
    epochs: int = 0
    seed: int = 0
    shadows: int = 4
    canaries: int = 20_000
    labels: int = 40
    attacker: str = "all"
    starts: int = 256
    rounds: int = 0


Found = tuple[dict[str, Any], Table]
"""Content of the file, and the table on the screen."""


def interval(found: float, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share of rows."""
    return clopper_pearson(round(found * trials), trials)


def share(found: float, trials: int) -> str:
    """A share of rows with its interval."""
    low, high = interval(found, trials)
    return f"{found:.2%} ({low:.1%} to {high:.1%})"
