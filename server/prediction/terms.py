"""How the model of a run is asked, whoever asks it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from colonnade.server.training.absence import Absent


@dataclass(frozen=True, kw_only=True)
class PredictionTerms:
    """What holds for every question of one start.

    Args:
        absent: what is taken for a party that is not there.
        patience: seconds that parties have to come, and to come back; None for federation.timeouts.away.
        expected: those that may come at all; None for all.
        own: whether parties predict too, and keep that at home.
        secure: False talks plainly, on loopback only.
    """

    absent: Absent = "refuse"
    patience: float | None = None
    expected: Collection[str] | None = None
    own: bool = False
    secure: bool = True
