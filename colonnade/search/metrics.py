"""The metric that a search improves, always on validation rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from colonnade.common.config.run_options import Task
from colonnade.common.errors import InputError, nearest
from colonnade.reports.standings.contender import Measure

UP, DOWN = "maximize", "minimize"
"""Directions, in Optuna's words."""

_OF_TASK: Mapping[Task, Mapping[str, str]] = {
    "classification": {
        "accuracy": UP, "auc": UP, "average_precision": UP, "balanced_accuracy": UP, "f1": UP,
        "ks": UP, "lift": UP, "gain": UP,
        "loss": DOWN, "log_loss": DOWN, "brier": DOWN, "ece": DOWN,
    },
    "regression": {"rmse": DOWN, "mae": DOWN, "r2": UP, "loss": DOWN},
}  # fmt: skip
_EVERY_TIME = {"accuracy", "loss", "rmse", "mae", "r2"}
_PREFIX = "val_"


@dataclass(frozen=True)
class SearchMetric:
    """A metric and its direction.

    Args:
        metric: name without the rows' prefix, such as `auc`.
        prefix: part of the rows, as in a run's metrics.
    """

    metric: str
    direction: str
    prefix: str = _PREFIX

    @property
    def name(self) -> str:
        """Name in the metrics of a run: `val_auc`."""
        return self.prefix + self.metric

    @property
    def thorough(self) -> bool:
        """True if evaluations during a run compute it only on request."""
        return self.metric not in _EVERY_TIME

    @property
    def measure(self) -> Measure:
        return Measure(self.metric, self.direction == UP)

    def better(self, one: float, other: float) -> bool:
        return one > other if self.direction == UP else one < other


def search_metric(wanted: str, direction: str, task: Task) -> SearchMetric:
    """The metric of a search.

    Args:
        wanted: such as `val_auc`; "" for the accuracy, or in a regression the RMSE.
        direction: `maximize` or `minimize`; "" for the metric's own, which a plug-in's metric does not have.

    Raises InputError if it is of test rows, unknown, or its direction is the wrong one.
    """
    known = _OF_TASK[task]
    wanted = wanted or _PREFIX + ("accuracy" if task == "classification" else "rmse")
    if wanted.startswith("test_"):
        raise InputError(
            f"--metric {wanted}: a search may not choose by test rows, which would then no longer test anything",
            hint=f"take {_PREFIX}{wanted.removeprefix('test_')}; the test rows are for the one run after the search",
        )
    return _resolved(wanted, direction, known, _PREFIX)


def fold_metric(wanted: str, task: Task) -> SearchMetric:
    """The metric of a cross-validation, on the rows that a fold holds out; "" as for `search_metric`."""
    known = _OF_TASK[task]
    wanted = wanted or ("accuracy" if task == "classification" else "rmse")
    for prefix in ("test_", _PREFIX):
        if wanted.startswith(prefix):
            raise InputError(
                f"--metric {wanted}: every metric of a cross-validation is of the rows that a fold holds out",
                hint=f"write {wanted.removeprefix(prefix)}",
            )
    return _resolved(wanted, "", known, "")


def _resolved(wanted: str, direction: str, known: Mapping[str, str], prefix: str) -> SearchMetric:
    names = [prefix + name for name in known]
    if direction not in ("", UP, DOWN):
        raise InputError(f"--direction {direction}: expected {UP} or {DOWN}")
    metric = wanted.removeprefix(prefix)
    if wanted not in names:
        if not (direction and wanted.startswith(prefix)):
            raise InputError(
                f"--metric {wanted}: unknown metric{nearest(wanted, names)}", hint=f"there are {', '.join(names)}"
            )
        return SearchMetric(metric, direction, prefix)
    if direction and direction != known[metric]:
        raise InputError(
            f"--direction {direction} with --metric {wanted}: the better end is the other one",
            hint=f"leave it out: {wanted} is to {known[metric]}",
        )
    return SearchMetric(metric, known[metric], prefix)
