"""Thins long curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
MOST = 500  # more points per curve than a screen resolves


def thin(points: Sequence[T], value: Callable[[T], float], most: int = MOST) -> list[T]:
    """Returns at most `most` points (at least 4) in order: the ends, and the lowest and highest of every stretch.

    Peaks of a single round survive, and no point is made up. The result looks like the whole curve, but means and
    densities can no longer be read off it.
    """
    if len(points) <= most:
        return list(points)
    stretches, last = (most - 2) // 2, len(points) - 1
    kept = {0, last}
    for number in range(stretches):
        inside = range(1 + number * (last - 1) // stretches, 1 + (number + 1) * (last - 1) // stretches)
        kept |= {choose(inside, key=lambda at: value(points[at])) for choose in (min, max)}
    return [points[at] for at in sorted(kept)]
