"""Growth of a figure over time within processes, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from benchmarks.soak.samples import Sample

WARM, LEAST = 120.0, 600.0  # seconds of a process that are excluded, and that it must run for after them
BLOCK, DRAWS = 30, 500  # samples per bootstrap block, since neighbours are correlated; bootstrap draws


@dataclass(frozen=True)
class Slope:
    """Growth an hour, with its 95 % interval, and the hours of samples and the processes behind it."""

    slope: float
    low: float
    high: float
    hours: float
    processes: int


def slope(samples: Sequence[Sample], name: str, warm: float = WARM, least: float = LEAST) -> Slope | None:
    """The common slope within the processes of one member, each with its own intercept, by least squares.

    The interval comes from a bootstrap of the residuals in blocks.

    Args:
        warm: seconds at the beginning of each process that are excluded.
        least: seconds that a process must run for beyond these.
    """
    times, values, seconds, processes = [], [], 0.0, 0
    for _, group in groupby(samples, lambda sample: sample["life"]):
        life = list(group)
        kept = [sample for sample in life if sample["time"] >= life[0]["time"] + warm]
        if len(kept) < 3 or kept[-1]["time"] - kept[0]["time"] < least:
            continue
        t = np.array([sample["time"] for sample in kept]) / 3600
        y = np.array([float(sample[name]) for sample in kept])
        times.append(t - t.mean())
        values.append(y - y.mean())
        seconds, processes = seconds + kept[-1]["time"] - kept[0]["time"], processes + 1
    if not processes:
        return None
    t, y = np.concatenate(times), np.concatenate(values)
    fitted = float(t @ y / (t @ t))
    rest, draws = y - fitted * t, np.random.default_rng(0)
    block, starts = min(BLOCK, len(rest)), -(-len(rest) // min(BLOCK, len(rest)))
    again = []
    for _ in range(DRAWS):
        begins = draws.integers(0, len(rest) - block + 1, starts)
        drawn = np.concatenate([rest[begin : begin + block] for begin in begins])[: len(rest)]
        again.append(fitted + float(t @ drawn / (t @ t)))
    low, high = np.percentile(again, [2.5, 97.5])
    return Slope(fitted, float(low), float(high), seconds / 3600, processes)
