"""Terms on which a run's model predicts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Absent = Literal["refuse", "mean", "historical"]
"""What replaces an absent party: nothing (refuse), its mean output, or its last output for the same row."""


@dataclass(frozen=True, kw_only=True)
class PredictionTerms:
    """Settings for every question of one start.

    Args:
        absent: how an absent party is replaced.
        patience: seconds for parties to join or rejoin; None for federation.timeouts.away.
        expected: parties to wait for; None for all.
        own: True if parties predict too, and keep the result.
        secure: False for no TLS, on loopback only.
        lasting: True for a service; its tables and ids may change, so at times no row may be common.
    """

    absent: Absent = "refuse"
    patience: float | None = None
    expected: Collection[str] | None = None
    own: bool = False
    secure: bool = True
    lasting: bool = False
