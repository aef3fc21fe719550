"""Results of a comparison for a protocol and for a reference."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from colonnade.search.comparison.kept_runs import DONE, KeptRun
from colonnade.search.metrics import UP, SearchMetric

CANNOT = "cannot"
"""Status of a protocol that does not run on these data."""

SHARES = ("accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "r2", "ks", "gain")
"""Metrics of which a hundredth is a point."""


@dataclass
class ProtocolOutcome:
    """A protocol in a comparison.

    Args:
        notes: settings beyond its defaults.
        reason: why it cannot run, or why its defaults failed.
        defaults, tuned: runs with every seed; empty before they have ended.
        settings: of the tuned runs, KEY=VALUE; empty if the defaults were the best.
        trials: number of trials by their ends.
        searched: whether a search has ended.
    """

    name: str
    notes: tuple[str, ...] = ()
    reason: str = ""
    cannot: bool = False
    defaults: list[KeptRun] = field(default_factory=list)
    tuned: list[KeptRun] = field(default_factory=list)
    settings: tuple[str, ...] = ()
    trials: dict[str, int] = field(default_factory=dict)
    searched: bool = False

    @property
    def status(self) -> str:
        """Status of the defaults: `ok`, `diverged`, `failed`, `cannot`, or `waiting`."""
        if self.cannot:
            return CANNOT
        if not self.defaults:
            return "waiting"
        return next((run.state for run in self.defaults if run.state != DONE), DONE)

    @property
    def at_chance(self) -> str:
        """Which models the test rows do not show to be better than chance: `defaults`, `tuned`, `both`, or ""."""
        found = [name for name, runs in (("defaults", self.defaults), ("tuned", self.tuned)) if at_chance(runs)]
        return "both" if len(found) > 1 else "".join(found)

    def plain(self, goal: SearchMetric) -> dict[str, Any]:
        """One line of the table: values in the metric's own units, gaps in points or those units, seconds, bytes."""
        metric = goal.metric
        defaults, tuned = of_runs(self.defaults, metric), of_runs(self.tuned, metric)
        shown = self.tuned if self.searched and self.tuned else self.defaults
        return {
            "protocol": self.name,
            "status": self.status,
            "defaults_val": defaults[0], "defaults_test": defaults[1],
            "tuned_val": tuned[0], "tuned_test": tuned[1],
            "gap_val": gap(defaults[0], tuned[0], goal), "gap_test": gap(defaults[1], tuned[1], goal),
            "defaults_error": error_of(self.defaults, metric), "tuned_error": error_of(self.tuned, metric),
            "at_chance": self.at_chance,
            "settings": " ".join(self.settings),
            "tuning": "tuned" if self.settings else ("defaults were best" if self.searched and self.tuned else ""),
            "trials": ", ".join(f"{count} {state}" for state, count in self.trials.items()),
            "seconds": _mean([run.seconds for run in self.defaults]),
            "tuned_seconds": _mean([run.seconds for run in self.tuned]),
            "bytes": _mean([run.payload for run in self.defaults]),
            "tuned_bytes": _mean([run.payload for run in self.tuned]),
            "rounds": _mean([run.rounds for run in shown]),
            "notes": "; ".join(self.notes),
            "reason": self.reason,
        }  # fmt: skip


@dataclass(frozen=True)
class ReferenceOutcome:
    name: str
    words: str
    run: KeptRun

    def plain(self, goal: SearchMetric) -> dict[str, Any]:
        validated, tested = of_runs([self.run], goal.metric)
        return {
            "reference": self.name, "what": self.words, "status": self.run.state, "val": validated, "test": tested,
            "error": error_of([self.run], goal.metric), "at_chance": "yes" if at_chance([self.run]) else "",
            "seconds": self.run.seconds, "reason": self.run.reason,
        }  # fmt: skip


def of_runs(runs: list[KeptRun], metric: str) -> tuple[float | None, float | None]:
    """Mean of the metric on validation and on test rows; None unless all runs have ended well."""
    if any(run.state != DONE for run in runs):
        return None, None
    return _mean([run.metrics.get(metric) for run in runs]), _mean([run.tested.get(metric) for run in runs])


def error_of(runs: list[KeptRun], metric: str) -> float | None:
    """Standard error of the metric on test rows; further seeds share these rows and do not lower it."""
    return None if any(run.state != DONE for run in runs) else _mean([run.errors.get(metric) for run in runs])


def at_chance(runs: list[KeptRun]) -> bool:
    """True if for at least half of the seeds the test rows do not show a model better than chance."""
    return bool(runs) and 2 * sum(run.at_chance for run in runs) >= len(runs)


def gap(before: float | None, after: float | None, goal: SearchMetric) -> float | None:
    """Improvement, positive if the second is better: in points (hundredths) for shares, else in the metric's units."""
    if before is None or after is None:
        return None
    found = (after - before) * (1 if goal.direction == UP else -1)
    return found * (100 if goal.metric in SHARES else 1)


def _mean(values: list[Any]) -> float | None:
    return None if not values or any(value is None for value in values) else mean(values)
