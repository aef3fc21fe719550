"""From a row's margin to one of two classes: a threshold chosen on the validation rows, and recalibration.

A row is positive (the second class) if its probability is at least the threshold. The threshold is half way between
two neighbouring probabilities of validation rows, so rounding does not decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.common.config.members import Calibrate, DecideConfig
from colonnade.common.run.state import State
from colonnade.server.training.metrics import calibration, quality
from colonnade.server.training.metrics.calibration import Calibration

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_KEPT = "decision"  # key in the state
_GIVEN = ("at", "")  # values of `by` whose threshold is not chosen on rows

EVEN = 0.5  # default threshold: takes the more likely class

_POINTS = 100  # points of a curve at equal distances; as many again at equal numbers of rows
_EQUAL = 1e-12  # relative tolerance for equal values of a criterion


@dataclass(frozen=True)
class Decision:
    """How a row's class follows from its margin.

    Args:
        threshold: least probability at which a row is positive.
        by: what chose it: f1, youden or cost; "at" if it was given, "" for the default.
        costs: cost of a false positive and of a false negative, with `cost`.
        calibration: recalibrates probabilities; None for the model's own.
        round: round of the model that it was chosen for; 0 if not chosen on outputs.
        rows: number of validation rows that it was chosen on; 0 for none.
    """

    threshold: float = EVEN
    by: str = ""
    costs: tuple[float, float] | None = None
    calibration: Calibration | None = None
    round: int = 0
    rows: int = 0

    def probabilities(self, margins: Floats) -> Floats:
        """Log-odds float64 (rows,) -> probabilities of the positive class, float64 (rows,)."""
        return calibration.sigmoid(margins) if self.calibration is None else self.calibration.of(margins)

    def positive(self, probabilities: Floats) -> Bools:
        return probabilities >= self.threshold

    @property
    def calibrated(self) -> str | None:
        return None if self.calibration is None else str(self.calibration.record()["name"])

    def record(self) -> dict[str, Any]:
        """JSON values, for `read`; stored in the state."""
        return {
            "threshold": self.threshold,
            "by": self.by,
            "costs": None if self.costs is None else list(self.costs),
            "calibration": None if self.calibration is None else self.calibration.record(),
            "round": self.round,
            "rows": self.rows,
        }

    def summary(self, positive: str | None) -> dict[str, Any]:
        return {"class": positive, **self.record(), "calibration": self.calibrated}


def read(record: Mapping[str, Any]) -> Decision:
    costs = record["costs"]
    return Decision(
        record["threshold"],
        record["by"],
        None if costs is None else (costs[0], costs[1]),
        calibration.read(record["calibration"]),
        record["round"],
        record["rows"],
    )


def kept(state: State, decide: DecideConfig | None, calibrate: Calibrate) -> Decision | None:
    """The decision stored with a model, if these settings ask for it; a given threshold replaces the stored one."""
    record: dict[str, Any] = state.keep(_KEPT, dict)
    by, at, costs = _asked(decide)
    if not record and by == "at" and calibrate == "none":
        return Decision(at, by)
    if not record or calibrate != ((found := read(record)).calibrated or "none"):
        return None
    if by in _GIVEN:
        return replace(found, threshold=at, by=by, costs=None)
    return found if (by, costs) == (found.by, found.costs) else None


def keep(state: State, found: Decision | None) -> bool:
    """Stores the decision in the state, or removes it (None). Returns True if another one was stored."""
    record: dict[str, Any] = state.keep(_KEPT, dict)
    before, new = dict(record), {} if found is None else found.record()
    record.clear()
    record.update(new)
    return new != before


def choose(
    decide: DecideConfig | None, calibrate: Calibrate, margins: Floats, positive: Bools, round: int
) -> Decision | None:
    """Chooses a decision on rows with these margins, the log-odds of the positive class, float64 (rows,).

    None if a margin is not finite, or the rows have one class.
    """
    if not np.isfinite(margins).all() or not 0 < positive.sum() < len(positive):
        return None
    made, (by, at, costs) = calibration.fit(calibrate, margins, positive), _asked(decide)
    if by in _GIVEN:
        return Decision(at, by) if made is None else Decision(at, by, None, made, round, len(positive))
    at = threshold(by, Decision(calibration=made).probabilities(margins), positive, costs)
    return Decision(at, by, costs, made, round, len(positive))


def _asked(decide: DecideConfig | None) -> tuple[str, float, tuple[float, float] | None]:
    """What chooses the threshold, as `Decision.by`; the threshold where it is not chosen on rows; and the costs."""
    if decide is None or decide.by is None:
        return ("", EVEN, None) if decide is None or decide.at is None else ("at", decide.at, None)
    if decide.false_positive is None or decide.false_negative is None:
        return decide.by, EVEN, None
    return decide.by, EVEN, (decide.false_positive, decide.false_negative)


def threshold(by: str, probabilities: Floats, positive: Bools, costs: tuple[float, float] | None = None) -> float:
    """The best threshold by a criterion (f1, youden or cost); of equals, the nearest to one half.

    `positive` must have both values; `costs` are of a false positive and of a false negative. Returns 0 if all rows are
    best positive; above all probabilities, possibly above 1, if none is.
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
    """Metrics of a decision on some rows: `decided_...`, and for calibrated probabilities `calibrated_...`.

    Undefined metrics are left out: `decided_precision` if no row is predicted positive, `decided_recall` if no row is
    positive, `decided_cost` (mean of a row) without costs. Empty if a margin is not finite.
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
    """`log_loss`, `brier` and `ece` of probabilities of the positive class."""
    both = np.stack([1.0 - probabilities, probabilities], axis=1)
    return quality.measure(both, positive.astype(np.int64), ("log_loss", "brier", "ece"))


def details(decision: Decision, margins: Floats, positive: Bools) -> dict[str, Any] | None:
    """`confusion` at the threshold (rows by true, then decided class), and points of a `curve` over thresholds.

    `probabilities` has log loss, Brier score and ECE `before` and `after` recalibration; None without. A point has
    `threshold`, `accuracy`, `precision`, `recall`, `f1` and `cost` (mean of a row), null where undefined. None if a
    margin is not finite.
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
    """Counts of rows by outcome at each of several thresholds, float64 (thresholds,).

    `hits` and `false` are true and false positives; `positive` and `rows` are numbers of positive rows, and of all.
    """

    thresholds: Floats
    hits: Floats
    false: Floats
    positive: int
    rows: int

    @classmethod
    def at(cls, thresholds: Floats, probabilities: Floats, positive: Bools) -> _Outcomes:
        ones, others = np.sort(probabilities[positive]), np.sort(probabilities[~positive])
        hits, false = ((len(kind) - np.searchsorted(kind, thresholds)).astype(np.float64) for kind in (ones, others))
        return cls(thresholds, hits, false, len(ones), len(positive))

    @property
    def missed(self) -> Floats:
        return self.positive - self.hits

    @property
    def others(self) -> Floats:
        return self.rows - self.positive - self.false

    @property
    def f1(self) -> Floats:
        """NaN where there are neither positive rows nor positive predictions."""
        return _over(2 * self.hits, self.positive + self.hits + self.false)

    def cost(self, costs: tuple[float, float] | None) -> Floats:
        """Mean cost of a row; NaN without costs."""
        if costs is None:
            return np.full_like(self.hits, np.nan)
        return (costs[0] * self.false + costs[1] * self.missed) / self.rows

    def points(self, decision: Decision) -> list[dict[str, float | None]]:
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
    """The ratio; NaN where `below` is 0."""
    return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)


def _candidates(probabilities: Floats) -> Floats:
    """One threshold for every possible set of positive rows: 0 for all, then half way between neighbours."""
    known = np.unique(probabilities)
    between = known[:-1] + np.diff(known) / 2
    between = np.where(between > known[:-1], between, known[1:])  # adjacent floats have no number in between
    top = float(known[-1])
    return np.array([0.0, *between, (1.0 + top) / 2 if top < 1.0 else np.nextafter(1.0, 2.0)])
