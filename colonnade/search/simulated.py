"""One simulation of a search: a trial, or a fold of a cross-validation."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.rows import Partition, partition_around
from colonnade.common.errors import ColonnadeError, ContractError, EnvironmentFault, InputError, TrainingDiverged
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.run.device import torch_threads
from colonnade.search.folds import read_aligned, read_parts
from colonnade.server.member.context import Timetable
from colonnade.simulation.federation import Outcome, Simulation

_FINITE = "finite numbers"  # wording of contracts' errors

Listen = Callable[[int, Mapping[str, float], bool], bool]
"""Called after every evaluation with its number from 1, its metrics, and whether it is the last that is planned; False
ends the simulation."""


class TrialEnded(Exception):  # private: raised and caught here alone
    """A listener has ended the simulation."""


class Diverged(ColonnadeError):
    """A metric is no longer finite."""


@dataclass(frozen=True)
class Task:
    """A simulation, serialisable as JSON for another process.

    Args:
        tree: the configuration as in a YAML file, with this trial's values.
        base: folder that paths in it are relative to.
        part: rows whose evaluations count: `validation`, or `test` for the rows that a fold holds out.
        thorough: whether every evaluation has every metric.
        aligned: file of every member's rows in their common order; "" if rows are matched by order.
        held: rows that a fold holds out; empty in a trial, which evaluates no test rows.
        divided: file of the row numbers of every part; "" for the parts of `federation.rows`.
        tested: whether to evaluate the test rows beside the validation rows, if no fold holds rows out.
    """

    tree: Mapping[str, Any]
    base: str
    part: str = "validation"
    thorough: bool = False
    aligned: str = ""
    held: tuple[int, ...] = ()
    threads: int = 1
    divided: str = ""
    tested: bool = False


@dataclass(frozen=True)
class Result:
    """Result of a simulation.

    Args:
        metrics: the last round's, or with `federation.stop` the best round's; without the rows' prefix.
        round: that round; `rounds` is their number.
        payload: bytes of tensors between the parties and the server.
        ended: True if the listener ended it.
        tested: metrics of the test rows in that round, if evaluated.
        errors: standard errors of some of these, by name.
        chance: the verdict on these rows: `server.evaluation.chance`.
        validation_errors: standard errors of some of `metrics`, where evaluations are thorough.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    rounds: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    payload: int = 0
    ended: bool = False
    tested: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    chance: Mapping[str, Any] | None = None
    validation_errors: Mapping[str, float] = field(default_factory=dict)


class _Evaluations:
    """Follows the evaluations of one part."""

    def __init__(self, part: str, listen: Listen) -> None:
        self._part, self.prefix, self._listen = part, "val_" if part == "validation" else f"{part}_", listen
        self._rounds = 0
        self.found: dict[int, dict[str, float]] = {}
        self.tested: dict[int, dict[str, float]] = {}
        self.judged: dict[int, dict[str, Any]] = {}
        self.errors: dict[int, Mapping[str, float]] = {}

    def __call__(self, event: Event) -> None:
        if event["kind"] == "round":
            self._rounds = event["rounds"]
        if event["kind"] != "evaluation":
            return
        if event["part"] != self._part:
            self.judged[event["round"]] = {key: event[key] for key in ("errors", "chance") if key in event}
            self.tested[event["round"]] = {
                key.removeprefix("test_"): value for key, value in event.items() if key.startswith("test_")
            }
            return
        values = {key.removeprefix(self.prefix): value for key, value in event.items() if key.startswith(self.prefix)}
        if wrong := next((key for key, value in values.items() if not math.isfinite(value)), None):
            raise Diverged(
                f"diverged: {self.prefix}{wrong} is no number in round {event['round']}",
                hint="lower learning rates train more steadily",
            )
        self.found[event["round"]], self.errors[event["round"]] = values, event.get("errors", {})
        if not self._listen(len(self.found), values, event["round"] == self._rounds):
            raise TrialEnded


def perform(task: Task, listen: Listen) -> Result:
    """Simulates a task to its end. Raises `Diverged`, and errors of a real run."""
    begun = time.perf_counter()
    course = _Evaluations(task.part, listen)
    config = parse(dict(task.tree))
    simulation = Simulation(
        config,
        Path(task.base),
        telemetry=Telemetry(None, course),
        timetable=_timetable(task),
        thorough=task.thorough,
        aligned=read_aligned(Path(task.aligned)) if task.aligned else None,
    )
    try:
        with torch_threads(task.threads):
            outcome = simulation.run()
    except TrainingDiverged as error:
        raise Diverged(f"diverged: {error}", hint="lower learning rates train more steadily") from error
    except TrialEnded:
        return _result(course, None, time.perf_counter() - begun)
    return _result(course, outcome, time.perf_counter() - begun)


def _timetable(task: Task) -> Timetable:
    if task.held:
        return partial(fold_schedule, torch.tensor(task.held))
    if not task.divided:
        return Schedule if task.tested else without_test_rows
    return partial(divided_schedule, read_parts(Path(task.divided)), tested=task.tested)


def without_test_rows(federation: FederationConfig, rows: int, official_test: int) -> Schedule:
    """The schedule of the final run, without evaluations of its test rows: no trial evaluates them."""
    schedule = Schedule(federation, rows, official_test)
    none = torch.empty(0, dtype=torch.int64)
    schedule.partition = replace(schedule.partition, test=none)
    return schedule


def divided_schedule(
    parts: Partition, federation: FederationConfig, rows: int, official_test: int, *, tested: bool
) -> Schedule:
    """A schedule of given parts, whose test rows take part only if `tested`."""
    none = torch.empty(0, dtype=torch.int64)
    return Schedule(federation, rows, official_test, parts if tested else replace(parts, test=none))


def fold_schedule(held: torch.Tensor, federation: FederationConfig, rows: int, official_test: int) -> Schedule:
    """A schedule whose test rows are those that the fold holds out; a source's own test rows take no part."""
    parts = partition_around(held, rows - official_test, federation.rows, federation.seed)
    return Schedule(federation, rows, official_test, parts)


def _result(course: _Evaluations, outcome: Outcome | None, seconds: float) -> Result:
    if not course.found:
        raise InputError("no evaluation has taken place", hint="give federation.rounds or federation.epochs more")
    last = max(course.found)
    if outcome is None:
        return Result(course.found[last], last, last, len(course.found), round(seconds, 3), 0, ended=True)
    best = outcome.server.best.round
    round_ = best if best in course.found else last
    metrics = dict(course.found[round_])
    if round_ == last:  # including those at the end of a run
        at_end = outcome.server.metrics.items()
        found = {key.removeprefix(course.prefix): value for key, value in at_end if key.startswith(course.prefix)}
        metrics = {key: value for key, value in found.items() if math.isfinite(value)} | metrics
    return Result(
        metrics, round_, outcome.server.round, len(course.found), round(seconds, 3), sum(outcome.payload),
        tested=course.tested.get(round_, {}), **course.judged.get(round_, {}), validation_errors=course.errors[round_],
    )  # fmt: skip


def failure(error: Exception) -> tuple[str, str]:
    """Reason and hint of a failed simulation."""
    if isinstance(error, ContractError) and error.expected == _FINITE:
        return f"diverged: {error}", error.hint
    if isinstance(error, ColonnadeError):
        return str(error), error.hint
    fault = EnvironmentFault(f"a fault of the program: {type(error).__name__}: {error}")
    return str(fault), ""
