"""Growth of a norm and of the loss over rounds, distinguished from noise."""

from __future__ import annotations

from statistics import median
from typing import Any

_STALE = 50  # rounds without a new peak, after which a high loss becomes the new baseline

GREW, EXPLODED = 10.0, 100.0
"""Factors over the largest earlier norm from which a norm grows, and explodes."""

_REMEMBERED = 20  # entries for which a past growth can still be the cause of another

_SLOW = 2.0  # factor over the largest earlier norm below which growth ends

_LAG = 10  # a norm is compared with those at least 10 entries back: growth by 1.3 each time is then 14-fold

_WINDOW = 5  # rounds of the moving median, which ignores two outliers
_ROSE, _EXPLODED_BY = 0.5, 3.0  # rise of the median above its best, in multiples of the first loss


class NormGrowth:
    """Norm of one value over rounds: it grows while it is far above all norms more than a few entries back.

    `kept` is the whole state between two rounds, part of the server's.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept
        if not kept:
            kept.update(since=0, factor=1.0, now=1.0, over=[0, 1.0], age=0, recent=[], before=0.0, usual=0.0)

    @property
    def since(self) -> int:
        """Round in which it began to grow, 0 if it does not."""
        return int(self._kept["since"])

    @property
    def factor(self) -> float:
        """Largest factor of growth since then; 1 if it does not grow."""
        return float(self._kept["factor"])

    @property
    def now(self) -> float:
        return float(self._kept["now"])

    def add(self, round: int, norm: float) -> None:
        """Adds the norm of a round, finite and not negative."""
        kept, recent = self._kept, self._kept["recent"]
        before = kept["before"] or next(filter(None, recent), 0.0)
        kept["age"] += 1
        if kept["since"]:
            self._follow(norm, before)
        elif before and norm >= GREW * before:
            again = kept["over"][0] and kept["age"] < _REMEMBERED
            kept.update(since=kept["over"][0] if again else round, usual=before)
            kept["factor"] = kept["now"] = norm / before
        if len(recent) == _LAG:
            kept["before"] = max(kept["before"], recent.pop(0))
        recent.append(norm)

    @property
    def exploded(self) -> bool:
        """True if it is far beyond what noise explains."""
        return self.factor >= EXPLODED

    @property
    def newest(self) -> float:
        return float(self._kept["recent"][-1]) if self._kept["recent"] else 0.0

    @property
    def last(self) -> tuple[int, float]:
        """Round in which the newest growth began, and its factor; also for a growth that ended recently."""
        if self.since:
            return self.since, self.factor
        since, factor = self._kept["over"]
        return (since, factor) if self._kept["age"] < _REMEMBERED else (0, 1.0)

    def _follow(self, norm: float, before: float) -> None:
        kept = self._kept
        kept["now"] = norm / kept["usual"]
        kept["factor"] = max(kept["factor"], kept["now"])
        if norm < _SLOW * before:
            kept.update(over=[kept["since"], kept["factor"]], age=0, since=0, factor=1.0, now=1.0)


class LossGrowth:
    """The loss over rounds, by its moving median: a few bad batches do not move it.

    It grows once it has risen above its best by half the first loss, and explodes by three times that loss. `kept` is
    the whole state between two rounds, part of the server's.
    """

    def __init__(self, kept: dict[str, Any]) -> None:
        self._kept = kept

    @property
    def since(self) -> int:
        """First round of the rise, 0 if it does not grow."""
        return int(self._kept.get("since", 0))

    @property
    def rounds(self) -> int:
        """Number of consecutive rounds in which the median exploded."""
        return int(self._kept.get("rounds", 0))

    @property
    def best(self) -> float:
        """The lowest median so far; before the first one, the first loss."""
        return float(self._kept["best"])

    @property
    def now(self) -> float:
        return float(self._kept["now"])

    def add(self, round: int, loss: float) -> None:
        """Adds the loss of a round. It is finite; losses from other packages may be negative."""
        kept = self._kept
        if not kept:
            kept.update(scale=abs(loss), best=loss, now=loss, peak=loss, since=0, rounds=0, waited=0)
            kept.update(begun=False, recent=[])
        kept["recent"] = [*kept["recent"], [round, loss]][-_WINDOW:]
        if len(kept["recent"]) < _WINDOW:
            return
        kept["now"] = median(loss for _, loss in kept["recent"])
        if not kept["begun"]:  # noise may raise an untrained model's loss; an explosion raises it far more
            kept["begun"] = True
            kept["scale"] = max(kept["scale"], abs(kept["now"]) if abs(kept["now"]) < GREW * kept["scale"] else 0.0)
        kept["best"] = min(kept["best"], kept["now"])
        self._find_rise(kept["best"] + _ROSE * kept["scale"])
        exploded = self.since and self.now > self.best + _EXPLODED_BY * kept["scale"]
        kept["rounds"] = self.rounds + 1 if exploded else 0

    def _find_rise(self, line: float) -> None:
        kept = self._kept
        if kept["now"] <= line or not kept["scale"]:
            kept["since"] = 0
            return
        if not kept["since"]:
            first = next(round for round, loss in kept["recent"] if loss > line)
            kept.update(since=first, peak=kept["now"], waited=0)
        kept["waited"] = 0 if kept["now"] > kept["peak"] else kept["waited"] + 1
        kept["peak"] = max(kept["peak"], kept["now"])
        if kept["waited"] >= _STALE:  # a constant loss does not grow
            kept.update(best=kept["now"], since=0)
