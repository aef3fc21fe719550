"""Terms on which the model of a run predicts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from colonnade.server.training.absence import Absent


@dataclass(frozen=True, kw_only=True)
class PredictionTerms:
    """Settings for every question of one start.

    Args:
        absent: how an absent party is replaced.
        patience: seconds that parties have to come, and to come back; None for federation.timeouts.away.
        expected: parties that may come at all; None for all.
        own: True if parties predict too, and keep the result.
        secure: False for no TLS, on loopback only.
        lasting: of a service, whose tables and ids may change: for a time it may know none of them.
    """

    absent: Absent = "refuse"
    patience: float | None = None
    expected: Collection[str] | None = None
    own: bool = False
    secure: bool = True
    lasting: bool = False
