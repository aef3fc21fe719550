"""Options of the attacks, and cells that several tables use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from colonnade_lab.attacks.bounds import clopper_pearson


@dataclass(frozen=True)
class Options:
    """Options of an attack.

    Args:
        party: the party whose capture is attacked; "" for all.
        known: share of the training rows whose features the attacker has.
        epochs: number of newest captured epochs that are used; 0 for all, combined.
        seed: of all of the attacker's draws.
        shadows: number of simulated federations for membership attacks.
        canaries: number per audited mechanism.
        labels: number of labels that the party of a completion knows.
        attacker: on columns; `all` for each.
        starts: number of first weights that the first of these tries.
        rounds: number of first rounds that these see; 0 for all.
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
    """95 % interval of a share of rows."""
    return clopper_pearson(round(found * trials), trials)


def share(found: float, trials: int) -> str:
    low, high = interval(found, trials)
    return f"{found:.2%} ({low:.1%} to {high:.1%})"
