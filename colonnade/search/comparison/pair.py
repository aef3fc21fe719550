"""Runs of one protocol: with its defaults, a search, and the best values again with test rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from colonnade.common.errors import ColonnadeError, ConfigError, EnvironmentFault, InputError
from colonnade.search.comparison.adapting import GivenSetup
from colonnade.search.comparison.outcomes import (
    DIVERGED,
    DONE,
    FAILED,
    LOST,
    PRUNED,
    KeptRun,
    ProtocolOutcome,
    RunShelf,
)
from colonnade.search.metrics import SearchMetric
from colonnade.search.simulated import Task, failure
from colonnade.search.space import Searched, Tree, applied, check_space, default_space, own_values
from colonnade.search.study import Asked, TrialStore, open_store

if TYPE_CHECKING:
    from colonnade.search.simulated import Result
    from colonnade.search.workers import Performer

_DIVERGED, _NOT_FINITE = "diverged: ", "no finite number any more"  # wording of errors

Watch = Callable[[int, Mapping[str, float]], bool]
"""Called after every evaluation with its number from 1 and its metrics; False ends the run."""


class _NotKept(Exception):  # private: a run is missing
    """A stored comparison lacks a run."""


class ComparisonStopped(Exception):  # private: another thread was interrupted
    """The comparison was stopped; no further run begins."""


@dataclass
class PairRuns:
    """Makes the runs of protocols in a worker, or takes stored ones.

    Args:
        given: the configuration that all share.
        trials: number of trials of a search, without the defaults; 0 for none.
        seeds: number of runs with test rows.
        stop: set when the comparison ends early.
        ran: called after every run with its protocol, and whether it was stored before.
    """

    given: GivenSetup
    shelf: RunShelf
    goal: SearchMetric
    trials: int
    seeds: int
    stop: threading.Event = field(default_factory=threading.Event)
    ran: Callable[[str, bool], None] = lambda _protocol, _kept: None

    def restored(self, name: str) -> ProtocolOutcome | None:
        """Outcome of a protocol from stored runs alone; None if a run is missing."""
        outcome = ProtocolOutcome(name)
        try:
            replace(self, ran=lambda _protocol, _kept: None).complete(outcome, None)
        except (_NotKept, ConfigError):
            return None
        return outcome

    def complete(self, outcome: ProtocolOutcome, performer: Performer | None) -> None:
        """Makes all runs of a protocol, and records their results as they end. Without a performer it makes none.

        Raises:
            ComparisonStopped: it was interrupted.
            ColonnadeError: this process failed, such as by a full disk.
        """
        try:
            setup = self.given.of_protocol(outcome.name)
        except InputError as refused:
            outcome.cannot, outcome.reason = True, said(refused)
            return
        outcome.notes, outcome.federation = setup.notes, setup.tree["federation"]
        made = [self._tested(seeded(setup.tree, number), performer, outcome.name) for number in range(self.seeds)]
        if made[0].state == FAILED and not made[0].evaluations:
            outcome.cannot, outcome.reason = True, made[0].reason
            return
        outcome.defaults = made
        outcome.reason = next((run.reason for run in made if run.reason), "")
        if self.trials:
            self._search(outcome, setup.tree, performer)

    def _search(self, outcome: ProtocolOutcome, tree: Tree, performer: Performer | None) -> None:
        space = self._space(tree)
        if not space:
            outcome.searched, outcome.tuned = True, list(outcome.defaults)
            return
        store = open_store("", outcome.name, space, self.goal, place="", seed=0, pruner="median")
        own = own_values(tree, space)
        whole = len(own) == len(space)
        store.begin(own if whole else {})
        while (asked := store.ask(self.trials + whole)) is not None:
            first = whole and asked.number == 0
            run = outcome.defaults[0] if first else self._trial(asked, store, tree, performer)
            _tell(store, asked, run, self.goal, replayed=first)
            outcome.trials[run.state] = outcome.trials.get(run.state, 0) + 1
        best, before = store.best(), outcome.defaults[0]
        outcome.searched = True
        known = before.result.metrics.get(self.goal.metric) if before.state == DONE else None
        if best is None or best.value is None or (known is not None and not self.goal.better(best.value, known)):
            outcome.tuned = list(outcome.defaults) if known is not None else []
            return
        chosen = applied(tree, best.settings)
        outcome.settings = best.settings
        outcome.tuned = [self._tested(seeded(chosen, n), performer, outcome.name) for n in range(self.seeds)]

    def _space(self, tree: Tree) -> tuple[Searched, ...]:
        """The default space, without batches larger than the training rows."""
        try:
            found = default_space(tree)
        except InputError:
            return ()
        batches = found.get("federation.batch")
        if batches is not None:
            fit = tuple(size for size in batches.choices if int(size) <= self.given.subject.train)
            found = {**found, "federation.batch": batches.model_copy(update={"choices": fit})}
            if len(fit) < 2:
                found = {key: values for key, values in found.items() if key != "federation.batch"}
        return check_space(tree, found) if found else ()

    def _trial(self, asked: Asked, store: TrialStore, tree: Tree, performer: Performer | None) -> KeptRun:
        """A run without test rows that may be pruned; evaluations are reported as they arrive."""

        def watch(number: int, metrics: Mapping[str, float]) -> bool:
            value = metrics.get(self.goal.metric)
            return value is None or not store.report(asked, number, value)

        return self._run(applied(tree, asked.settings), performer, store.goal.name, watch=watch)

    def _tested(self, tree: Tree, performer: Performer | None, name: str) -> KeptRun:
        return self._run(tree, performer, name, tested=True)

    def _run(
        self, tree: Tree, performer: Performer | None, about: str, *, tested: bool = False, watch: Watch | None = None
    ) -> KeptRun:
        if self.stop.is_set():
            raise ComparisonStopped
        key, protocol = self.shelf.key(tree, tested=tested), tree["federation"]["protocol"]["name"]
        kept = self.shelf.get(key)
        if kept is not None and kept.has(self.goal.metric, tested=tested) and _again(kept, watch):
            self.ran(protocol, True)
            return kept
        if performer is None:
            raise _NotKept
        run = self._performed(tree, performer, watch, tested=tested)
        if run.state != LOST:
            self.shelf.keep(key, run, {"protocol": protocol, "run": about, "federation": tree["federation"]})
        self.ran(protocol, False)
        return run

    def _performed(self, tree: Tree, performer: Performer, watch: Watch | None, *, tested: bool) -> KeptRun:
        evaluations: list[Mapping[str, float]] = []

        def listen(number: int, metrics: Mapping[str, float], last: bool) -> bool:
            if self.stop.is_set():
                return False
            if self.goal.metric not in metrics:
                known = ", ".join(metrics)
                raise InputError(f"the validation rows have no {self.goal.name}", hint=f"there are {known}")
            evaluations.append(dict(metrics))
            return watch is None or watch(number, metrics) or last

        subject = self.given.subject
        task = Task(
            tree, str(self.given.base), thorough=tested or self.goal.thorough, divided=str(subject.parts), tested=tested
        )
        try:
            result: Result = performer.perform(task, listen)
        except Exception as error:  # noqa: BLE001  # no error may stop other runs
            if self.stop.is_set():
                raise ComparisonStopped from None
            return _failed(error, failure(error), evaluations)
        if self.stop.is_set():
            raise ComparisonStopped
        return KeptRun(PRUNED if result.ended else DONE, "", result, tuple(evaluations))


def seeded(tree: Tree, number: int) -> Tree:
    """The configuration with a repetition's seed; the first keeps its own."""
    own = int(tree["federation"].get("seed") or 0)
    return tree if not number else {**tree, "federation": {**tree["federation"], "seed": own + number}}


def said(error: ColonnadeError) -> str:
    return f"{error} ({error.hint})" if error.hint else str(error)


def _failed(error: Exception, said: tuple[str, str], evaluations: list[Mapping[str, float]]) -> KeptRun:
    """Result of a run that ended in an error, with the reason and the hint."""
    reason = f"{said[0]} ({said[1]})" if said[1] else said[0]
    state = FAILED
    if isinstance(error, EnvironmentFault):
        state = LOST
    elif reason.startswith(_DIVERGED) or _NOT_FINITE in reason:
        state, reason = DIVERGED, reason.removeprefix(_DIVERGED)
    return KeptRun(state, reason, evaluations=tuple(evaluations))


def _again(kept: KeptRun, watch: Watch | None) -> bool:
    """Replays the evaluations of a stored run. Returns False if the run would now continue beyond them.

    A run stored as pruned cannot be used if it would not be pruned now.
    """
    for number, metrics in enumerate(kept.evaluations if watch is not None else (), 1):
        assert watch is not None  # the loop is empty without it
        if not watch(number, metrics):
            return True
    return kept.state != PRUNED


def _tell(store: TrialStore, asked: Asked, run: KeptRun, goal: SearchMetric, *, replayed: bool) -> None:
    if replayed:
        for number, metrics in enumerate(run.evaluations, 1):
            if goal.metric in metrics:
                store.report(asked, number, metrics[goal.metric])
    if run.state == DONE:
        store.complete(asked, run.result.metrics[goal.metric], {"seconds": run.result.seconds})
    elif run.state == PRUNED:
        store.prune(asked, {"seconds": run.result.seconds})
    else:
        store.fail(asked, run.reason)
