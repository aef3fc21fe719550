"""Record of a run, and the measures computed from it, which docs/reproducing.md lists.

Every value carries its resolution (`Value.floor`): for shares the binomial error of the test rows, for costs to an
accuracy the distance between two evaluations.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

from colonnade.common.errors import ConfigError
from colonnade_lab.papers.intervals import Position, Seeds, Value, position

TRAINING = "train_accuracy"  # key in a record's metrics
_MIB, _MB = 2**20, 10**6
_FORM = re.compile(
    r"^(accuracy|training|auc|deviation|mb|mib|up|down|epsilon)$"
    r"|^(accuracy|own|norm|growth|mb|mib|seconds|rounds)@([a-z0-9_.]+)$"
    r"|^(mib|mb(_up|_down)?)@[0-9]+epochs$|^theorem@(zeta|variance|epsilon)$"
)
_LOWER = ("deviation", "mb", "mb_up", "mb_down", "mib", "seconds", "rounds", "up", "down", "epsilon")
_UNITS = {"mb": "MB", "mb_up": "MB", "mb_down": "MB", "mib": "MiB", "up": "MiB", "down": "MiB", "seconds": "s"}
_SHARES = ("accuracy", "own", "training", "auc")
_COSTS = ("mb", "mib", "seconds", "rounds")
_BARE = ("epsilon", "deviation", "rounds", "norm", "theorem")


Better = Literal["more", "fewer", "neither"]
Verdict = Literal["agrees", "better", "worse", "differs", "undecided"]
"""Of our value beside the paper's; it differs where neither direction is better."""


def known_measure(value: str) -> str:
    if not _FORM.match(value):
        raise ConfigError(f"measure {value!r}: expected one of accuracy, accuracy@EPOCH, own@PARTY, mb@PERCENT ..")
    return value


Measure = Annotated[str, AfterValidator(known_measure)]


class Point(BaseModel):
    """State of a run at an evaluation of the test rows; bytes are training's so far, both ways.

    `validation` is the accuracy on validation rows, if it is recorded.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    round: int
    epoch: float
    seconds: float
    bytes: int
    accuracy: float
    validation: float | None = None


class RunRecord(BaseModel):
    """Record of a run.

    Args:
        metrics: the last value of each, including the share of training rows that were right in the last epoch.
        points: every evaluation of the test rows.
        classes: accuracy by class, on test rows.
        tested: number of test rows; 0 for results from before 0.3.0, whose shares have no floor.
        bytes_up, bytes_down: of training messages.
        epsilon: of the party that spent most; None without protection.
        clock: seconds before the first round and per round, by delay in milliseconds, of a synchronous protocol.
        theorem: quantities of VFL-CZOFO's Theorem 4.1, by name.
        wall: seconds that the run took.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    metrics: dict[str, float]
    points: tuple[Point, ...]
    classes: tuple[float, ...] = ()
    tested: int = 0
    rounds: int
    parties: int
    bytes_up: int
    bytes_down: int
    epsilon: float | None = None
    clock: dict[str, tuple[float, float]] | None = None
    theorem: dict[str, float] = {}
    wall: float
    version: str = ""


def value(record: RunRecord, measure: str) -> Value:
    """Computes a measure, with its floor; infinite if the target was never reached, NaN if there is no value."""
    number, (kind, _, about) = _number(record, measure), measure.partition("@")
    if kind in _COSTS and about and not about.endswith("epochs"):
        at, last = _place(record, float(about) / 100), _cost(record.points[-1], kind) if record.points else math.inf
        return Value.of(number, 0.0 if at is None else _between_looks(record, at, kind), last)
    return Value.of(number, _floor(record, number, kind))


def seeds(records: Mapping[int, RunRecord], measure: str) -> Seeds:
    return {seed: value(record, measure) for seed, record in records.items()}


def _number(record: RunRecord, measure: str) -> float:
    kind, _, about = measure.partition("@")
    if about.endswith("epochs"):
        return _in_epochs(record, int(about.removesuffix("epochs")), kind)
    if about and kind in _COSTS:
        at = _place(record, float(about) / 100)
        return math.inf if at is None else _cost(record.points[at], kind)
    if kind == "accuracy" and about:
        return _after(record, float(about))
    if about:
        return _about(record, kind, about)
    return float(_PLAIN[kind](record))


def _about(record: RunRecord, kind: str, about: str) -> float:
    if kind == "theorem":
        return record.theorem.get(about, math.nan)
    if kind == "own":
        return 100 * record.metrics.get(f"test_accuracy_{about}", math.nan)
    return (1 if kind == "norm" else 100) * record.metrics.get(f"head_{kind}_{about}", math.nan)


def lower_is_better(measure: str) -> bool:
    return measure.partition("@")[0] in _LOWER


def unit(measure: str) -> str:
    kind = measure.partition("@")[0]
    return "" if kind in _BARE else _UNITS.get(kind, "%")


def possible(measure: str) -> tuple[float, float]:
    kind = measure.partition("@")[0]
    if kind in _SHARES:
        return 0.0, 100.0
    return (-100.0 if kind == "growth" else 0.0), math.inf


def better_of(measure: str) -> Better:
    return "fewer" if lower_is_better(measure) else "more"


def family(measure: str) -> str:
    """Orders compare measures of one family: all accuracies of test rows, including own models', are one."""
    kind = measure.partition("@")[0]
    return "accuracy" if kind in {"accuracy", "own"} else measure


def slack(paper: float, measure: str, digits: int | None = None) -> float:
    """Distance from the paper's value within which ours agrees with it.

    A point of accuracy, a quarter of a point of deviation, a hundredth of bytes, seconds and all other measures; plus
    half of the last of the `digits` that the paper prints, which its rounding may hide.
    """
    return _tolerance(paper, measure) + 0.5 * 10.0 ** -(decimals(paper) if digits is None else digits)


def verdict(ours: Sequence[float], paper: float, off: float, better: Better) -> Verdict:
    """Position of our values, one per seed, beside the paper's, by their whole interval; within `off` they agree."""
    return _said(position(ours, paper - off, paper + off), better)


def exact_verdict(ours: float, paper: float, off: float, better: Better) -> Verdict:
    """The verdict of a value that follows from shapes: one seed decides it."""
    if abs(ours - paper) <= off:
        return "agrees"
    return _said("above" if ours > paper else "below", better)


def _said(found: Position, better: Better) -> Verdict:
    if found in {"within", "open"}:
        return "agrees" if found == "within" else "undecided"
    if better == "neither":
        return "differs"
    return "better" if (found == "above") == (better == "more") else "worse"


def decimals(number: float) -> int:
    """Decimals of a number in its shortest form: 19 and 19.0 have none."""
    return len(f"{number:.10g}".partition(".")[2])


def _tolerance(paper: float, measure: str) -> float:
    if measure == "deviation":  # usually one or two points: a whole point would be too much
        return 0.25
    return 1.0 if unit(measure) == "%" else abs(paper) / 100


def _place(record: RunRecord, share: float) -> int | None:
    return next((at for at, point in enumerate(record.points) if point.accuracy >= share), None)


def _cost(point: Point, kind: str) -> float:
    if kind in {"seconds", "rounds"}:
        return point.seconds if kind == "seconds" else point.round
    return point.bytes / (_MB if kind == "mb" else _MIB)


def _between_looks(record: RunRecord, at: int, kind: str) -> float:
    """Deviation of a cost that lies anywhere between two evaluations."""
    before = _cost(record.points[at - 1], kind) if at else 0.0
    return (_cost(record.points[at], kind) - before) / math.sqrt(12)


def _floor(record: RunRecord, number: float, kind: str) -> float:
    """Binomial error of a share of the test rows, in points, and of the deviation of the classes' shares.

    One right and one wrong row are added, so that it is above 0 even if all rows are right.
    """
    if not record.tested or math.isnan(number):
        return 0.0
    if kind in _SHARES:
        return 100 * _binomial(number / 100, record.tested)
    if kind == "deviation":
        each = [_binomial(share, record.tested / len(record.classes)) for share in record.classes]
        return 100 * math.sqrt(statistics.fmean(error * error for error in each) / len(each))
    return 0.0


def share(record: RunRecord, accuracy: float) -> Value:
    """A share of a record's test rows, 0 to 1, with its binomial error."""
    return Value.of(accuracy, _binomial(accuracy, record.tested) if record.tested else 0.0)


def _binomial(share: float, rows: float) -> float:
    share = (share * rows + 1) / (rows + 2)
    return math.sqrt(share * (1 - share) / rows)


def _in_epochs(record: RunRecord, epochs: int, kind: str) -> float:
    size, _, way = kind.partition("_")
    sent = {"up": record.bytes_up, "down": record.bytes_down}.get(way, record.bytes_up + record.bytes_down)
    run = record.points[-1].epoch if record.points else 0.0
    return sent / (_MB if size == "mb" else _MIB) * epochs / run if run else math.nan


def _after(record: RunRecord, epoch: float) -> float:
    before = [point for point in record.points if point.epoch <= epoch + 1e-6]
    return 100 * before[-1].accuracy if before else math.nan


def _deviation(record: RunRecord) -> float:
    return 100 * statistics.pstdev(record.classes) if record.classes else math.nan


def _of_metric(key: str) -> Callable[[RunRecord], float]:
    return lambda record: 100 * record.metrics.get(key, math.nan)


_PLAIN: Mapping[str, Callable[[RunRecord], float]] = {
    "accuracy": _of_metric("test_accuracy"),
    "training": _of_metric(TRAINING),
    "auc": _of_metric("test_auc"),
    "deviation": _deviation,
    "mb": lambda record: (record.bytes_up + record.bytes_down) / _MB,
    "mib": lambda record: (record.bytes_up + record.bytes_down) / _MIB,
    "up": lambda record: record.bytes_up / record.rounds / record.parties / _MIB,
    "down": lambda record: record.bytes_down / record.rounds / record.parties / _MIB,
    "epsilon": lambda record: math.inf if record.epsilon is None else record.epsilon,
}
