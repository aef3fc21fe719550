"""Falling validation metrics: the model overfits, or its steps are too long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import Any

from colonnade.server.training.metrics.best import SMALL, named, said

_SINCE = 3  # newest evaluations, whose median is compared with the best one
_LEAST = 0.01  # least fall that is reported: one point, or 1 % of an error or loss


@dataclass
class Fall:
    """Whether the validation metric is below its best by more than the number of rows explains.

    `found` is part of the state: `round`, `best` and `margin` of the best evaluation, and the `newest` values.
    """

    found: dict[str, Any]
    metric: str

    def enter(self, round: int, value: float, error: float) -> bool:
        """Adds a value and its standard error on these rows (0 if unknown).

        Returns True if validation has fallen now, and had not before.
        """
        if not math.isfinite(value):
            return False
        if self.found.get("metric") != self.metric or self._above(value, self.found["best"]) > 0:
            self.found.clear()
            self.found.update(metric=self.metric, round=round, best=value, margin=self._margin(value, error), newest=[])
            return False
        before = self.fallen
        self.found["newest"] = [*self.found["newest"], value][-_SINCE:]
        return self.fallen and not before

    @property
    def fallen(self) -> bool:
        newest = self.found.get("newest", ())
        return len(newest) == _SINCE and self._above(self.found["best"], median(newest)) > self.found["margin"]

    @property
    def reason(self) -> str:
        if not self.fallen:
            return ""
        best, now = (said(self.metric, value) for value in (self.found["best"], self.found["newest"][-1]))
        fell = "risen" if self.metric in SMALL else "fallen"
        return f"validation {named(self.metric)} has {fell} since round {self.found['round']}: {best} then, {now} now"

    def _above(self, value: float, other: float) -> float:
        return other - value if self.metric in SMALL else value - other

    def _margin(self, value: float, error: float) -> float:
        return max(error, _LEAST * abs(value) if self.metric in SMALL else _LEAST)
