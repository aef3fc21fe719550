"""From the margin of a row to its class, of two: a threshold chosen on the validation rows, and their recalibration.

A row is of the positive class, the second of two, if its probability is at least the threshold. The threshold lies half
way between two neighbouring probabilities of validation rows, so that no row's last bit decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.common.checkpointing.state import State
from colonnade.common.config.decision import Calibrate, DecideConfig
from colonnade.server.evaluation import calibration, quality
from colonnade.server.evaluation.calibration import Calibration

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = "decision"  # in the server's state

EVEN = 0.5
"""Threshold of a model without one: the likelier class."""

_POINTS = 100  # of a curve, at equal distances; and as many at equal numbers of rows
_EQUAL = 1e-12  # of values of a criterion: a share of the largest


@dataclass(frozen=True)
class Decision:
    """How a row's class follows from its margin.

    Args:
        threshold: probability of the positive class from which a row is of it.
        by: what chose it: f1, youden or cost; "at" where it was given, "" where it is even.
        costs: of a false positive and of a false negative, with `cost`.
        calibration: of probabilities; None where they are the model's.
        round: of the model whose outputs it was made for; 0 where it needs none.
        rows: validation rows that it was made on; 0 for none.
    """

    threshold: float = EVEN
    by: str = ""
    costs: tuple[float, float] | None = None
    calibration: Calibration | None = None
    round: int = 0
    rows: int = 0

    def probabilities(self, margins: Floats) -> Floats:
        """Probabilities of the positive class, float64 (rows,), of log-odds float64 (rows,)."""
        return calibration.sigmoid(margins) if self.calibration is None else self.calibration.of(margins)

    def positive(self, probabilities: Floats) -> Bools:
        """True for rows of the positive class."""
        return probabilities >= self.threshold

    def record(self) -> dict[str, Any]:
        """JSON values, for `read`: kept with the server's state."""
        return {
            "threshold": self.threshold,
            "by": self.by,
            "costs": None if self.costs is None else list(self.costs),
            "calibration": None if self.calibration is None else self.calibration.record(),
            "round": self.round,
            "rows": self.rows,
        }

    def summary(self, positive: str | None) -> dict[str, Any]:
        """`decision` of summary.json."""
        named = None if self.calibration is None else self.calibration.record()["name"]
        return {"class": positive, **self.record(), "calibration": named}


def read(record: Mapping[str, Any]) -> Decision:
    """The decision that `record` describes."""
    costs = record["costs"]
    return Decision(
        record["threshold"],
        record["by"],
        None if costs is None else (costs[0], costs[1]),
        calibration.read(record["calibration"]),
        record["round"],
        record["rows"],
    )


def kept(state: State, decide: DecideConfig | None) -> Decision | None:
    """The decision that belongs to a model, from the server's state; None of a model without one.

    Args:
        decide: as configured now: a threshold that is given replaces the kept one.
    """
    record: dict[str, Any] = state.keep(_KEPT, dict)
    found = read(record) if record else None
    if decide is None or decide.at is None:
        return found
    return replace(found or Decision(), threshold=decide.at, by="at", costs=None)


def keep(state: State, found: Decision | None) -> None:
    """Replaces the decision in the server's state; None removes it."""
    record: dict[str, Any] = state.keep(_KEPT, dict)
    record.clear()
    record.update({} if found is None else found.record())


def choose(
    decide: DecideConfig | None, calibrate: Calibrate, margins: Floats, positive: Bools, round: int
) -> Decision | None:
    """The decision of these rows; None where their margins are not finite, or they are of one class.

    Args:
        margins: log-odds of the positive class, float64 (rows,).
        positive: True for rows of it, bool (rows,).
        round: of the model.
    """
    if not np.isfinite(margins).all() or not 0 < positive.sum() < len(positive):
        return None
    made = calibration.fit(calibrate, margins, positive)
    if decide is None or decide.by is None:
        by, at = ("", EVEN) if decide is None or decide.at is None else ("at", decide.at)
        return Decision(at, by, None, made, round, 0 if made is None else len(positive))
    costs = None
    if decide.false_positive is not None and decide.false_negative is not None:
        costs = decide.false_positive, decide.false_negative
    probabilities = Decision(calibration=made).probabilities(margins)
    at = threshold(decide.by, probabilities, positive, costs)
    return Decision(at, decide.by, costs, made, round, len(positive))


def threshold(by: str, probabilities: Floats, positive: Bools, costs: tuple[float, float] | None = None) -> float:
    """The threshold that is best by a criterion; of equal ones the nearest to one half.

    Args:
        by: f1, youden or cost.
        probabilities: float64 (rows,).
        positive: bool (rows,), of both kinds.
        costs: of a false positive and of a false negative, with `cost`.

    Returns:
        0 where every row is best taken for positive; above all probabilities, and perhaps above 1, where none is.
    """
    at = _candidates(probabilities)
    found = _Outcomes.at(at, probabilities, positive)
    match by:
        case "cost":
            value = -found.cost(costs)
        case "youden":
            value = found.hits / found.positive - found.false / (found.rows - found.positive)
        case _:
            value = found.f1
    best = at[value >= value.max() - _EQUAL * float(np.abs(value).max())]
    return float(best[np.abs(best - EVEN).argmin()])


def measures(decision: Decision, margins: Floats, positive: Bools) -> dict[str, float]:
    """Metrics of a decision on some rows, by name: `decided_...`, and of calibrated probabilities `calibrated_...`.

    `decided_precision` is left out where no row is taken for positive, `decided_recall` where none is, `decided_cost`,
    a row's mean, where there are no costs. None where a margin is not finite.
    """
    if not np.isfinite(margins).all():
        return {}
    probabilities = decision.probabilities(margins)
    found = _Outcomes.at(np.array([decision.threshold]), probabilities, positive).points(decision)[0]
    named = {f"decided_{name}": value for name, value in found.items() if value is not None and name != "threshold"}
    if decision.calibration is not None:
        named |= {f"calibrated_{name}": value for name, value in _closeness(probabilities, positive).items()}
    return named


def _closeness(probabilities: Floats, positive: Bools) -> dict[str, float]:
    """How far probabilities are from what happened: `log_loss`, `brier` and `ece`."""
    both = np.stack([1.0 - probabilities, probabilities], axis=1)
    return quality.measure(both, positive.astype(np.int64), ("log_loss", "brier", "ece"))


def details(decision: Decision, margins: Floats, positive: Bools) -> dict[str, Any] | None:
    """`confusion` at the threshold (rows by true and then decided class), and points of a `curve` over thresholds.

    `probabilities` has log loss, Brier score and ECE `before` and `after` recalibration; None without.
    A point has `threshold`, and what it would come to: `accuracy`, `precision`, `recall`, `f1` and `cost` (a row's
    mean), each null where it is not defined. None where a margin is not finite.
    """
    if not np.isfinite(margins).all():
        return None
    probabilities = decision.probabilities(margins)
    here = _Outcomes.at(np.array([decision.threshold]), probabilities, positive)
    hits, false, missed, others = (int(count[0]) for count in (here.hits, here.false, here.missed, here.others))
    evenly = np.linspace(0.0, 1.0, _POINTS + 1)
    at = np.unique(np.round([*evenly, *np.quantile(probabilities, evenly)], 6))
    curve = _Outcomes.at(at, probabilities, positive).points(decision)
    closer = None
    if decision.calibration is not None:
        before = _closeness(calibration.sigmoid(margins), positive)
        closer = {"before": before, "after": _closeness(probabilities, positive)}
    return {"confusion": [[others, false], [missed, hits]], "curve": curve, "probabilities": closer}


@dataclass(frozen=True)
class _Outcomes:
    """What becomes of some rows at each of several thresholds.

    Args:
        thresholds: float64 (thresholds,).
        hits, false: rows that are rightly and wrongly taken for positive, float64 (thresholds,).
        positive, rows: number of positive rows, and of all.
    """

    thresholds: Floats
    hits: Floats
    false: Floats
    positive: int
    rows: int

    @classmethod
    def at(cls, thresholds: Floats, probabilities: Floats, positive: Bools) -> _Outcomes:
        """Of rows with these probabilities and classes, (rows,) each."""
        ones, others = np.sort(probabilities[positive]), np.sort(probabilities[~positive])
        hits, false = ((len(kind) - np.searchsorted(kind, thresholds)).astype(np.float64) for kind in (ones, others))
        return cls(thresholds, hits, false, len(ones), len(positive))

    @property
    def missed(self) -> Floats:
        """Positive rows that are not taken for it."""
        return self.positive - self.hits

    @property
    def others(self) -> Floats:
        """Rows that are rightly not taken for positive."""
        return self.rows - self.positive - self.false

    @property
    def f1(self) -> Floats:
        """2 hits over the positive rows and those taken for it; not a number where there are none."""
        return _over(2 * self.hits, self.positive + self.hits + self.false)

    def cost(self, costs: tuple[float, float] | None) -> Floats:
        """Mean cost of a row; not a number where there are no costs."""
        if costs is None:
            return np.full_like(self.hits, np.nan)
        return (costs[0] * self.false + costs[1] * self.missed) / self.rows

    def points(self, decision: Decision) -> list[dict[str, float | None]]:
        """A point of a curve for each threshold, in JSON values: see `details`."""
        columns = {
            "threshold": self.thresholds,
            "accuracy": (self.hits + self.others) / self.rows,
            "precision": _over(self.hits, self.hits + self.false),
            "recall": _over(self.hits, np.full_like(self.hits, self.positive)),
            "f1": self.f1,
            "cost": self.cost(decision.costs),
        }
        of_each = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            {name: None if math.isnan(value) else value for name, value in zip(columns, point, strict=True)}
            for point in of_each
        ]


def _over(above: Floats, below: Floats) -> Floats:
    """The ratio; not a number where `below` is 0."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def _candidates(probabilities: Floats) -> Floats:
    """One threshold for every set of rows that one can take: 0 for all, then half way between neighbours."""
    known = np.unique(probabilities)
    between = known[:-1] + np.diff(known) / 2
    between = np.where(between > known[:-1], between, known[1:])  # of two numbers without one between them
    top = float(known[-1])
    return np.array([0.0, *between, (1.0 + top) / 2 if top < 1.0 else np.nextafter(1.0, 2.0)])
