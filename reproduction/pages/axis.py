"""The axis of a picture: where values lie between its left and its right edge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from colonnade.reports.html.svg import words

_LETTER, _LEAST, _APART = 7, 250, 64  # pixels: a letter in a wide face, the narrowest margin, from mark to mark


@dataclass(frozen=True)
class Axis:
    """Values as places in a picture; what lies beyond an end is drawn at that end.

    Args:
        left, right: its ends, in pixels.
        low, high: the values there.
        unit: of the values.
        powers: whether it counts in powers of ten; `low` is above 0 then.
    """

    left: float
    right: float
    low: float
    high: float
    unit: str
    powers: bool

    @classmethod
    def fitting(cls, values: Iterable[float], unit: str, left: float, right: float) -> Axis:
        """That of per cent ends at 100; all others go in powers of ten, since bytes and seconds differ by factors."""
        finite = [value for value in values if math.isfinite(value)]
        if unit == "%":
            low = max(0.0, 5 * math.floor((min(finite, default=0.0) - 1) / 5))
            return cls(left, right, low, 100, unit, powers=False)
        above = [value for value in finite if value > 0] or [1.0]
        least, most = math.floor(math.log10(min(above))), math.ceil(math.log10(max(above)))
        return cls(left, right, 10.0**least, 10.0 ** max(most, least + 1), unit, powers=True)

    def __call__(self, value: float) -> float:
        """Where a value is drawn, in pixels."""
        kept = min(max(value, self.low), self.high)
        return self.left + self._share(kept) * (self.right - self.left)

    @property
    def marks(self) -> list[float]:
        """The values that have a line."""
        if not self.powers:
            step = 5 if self.high - self.low <= 30 else 20
            return [self.low + step * n for n in range(int((self.high - self.low) / step) + 1)]
        least, most = round(math.log10(self.low)), round(math.log10(self.high))
        step = math.ceil((most - least) * _APART / (self.right - self.left))
        return [10.0**power for power in range(least, most + 1, step)]

    def lines(self, top: float, foot: float) -> list[str]:
        """Upright lines between two heights, and what they stand for below."""
        drawn = [
            f'<line x1="{self(at):.1f}" x2="{self(at):.1f}" y1="{top}" y2="{foot}" stroke="#d8dde3"/>'
            for at in self.marks
        ]
        return drawn + [words(self(at), foot + 11, f"{at:g} {self.unit}".strip(), "middle") for at in self.marks]

    def _share(self, value: float) -> float:
        if self.powers:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def margin(labels: Sequence[str]) -> int:
    """How wide the left margin is that these labels fit in, in pixels."""
    return max(_LEAST, math.ceil(24 + _LETTER * max(map(len, labels), default=0)))
