"""`tune`: searches for the configuration values that are best on the validation rows."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.config.members import Config
from colonnade.common.errors import ColonnadeError, InputError
from colonnade.common.parsing.dump import relocated
from colonnade.common.parsing.file import parse
from colonnade.common.run.own_settings import own_settings
from colonnade.launcher.configuration import ConfigLike, GivenConfig
from colonnade.launcher.readiness import refuse_incomplete
from colonnade.reports.console.live import showing
from colonnade.reports.console.outputs import write_text
from colonnade.search.folder import (
    SearchFolder,
    Tables,
    digest,
    place_of,
    refuse_fewer,
    refuse_unvalidated,
    write_config,
)
from colonnade.search.folds import HeldTables, align_once, pool_labels
from colonnade.search.found import Search, as_csv, looked
from colonnade.search.metrics import SearchMetric, search_metric
from colonnade.search.pages import Lines, gain_words, is_private, tune_page
from colonnade.search.simulated import Task, failure
from colonnade.search.space import (
    Searched,
    Tree,
    applied,
    check_space,
    default_space,
    own_values,
    read_space,
    without_space,
)
from colonnade.search.study import PRUNERS, Asked, TrialStore, commonest, load_optuna, masked, open_store
from colonnade.search.workers import share_out, threads_each

if TYPE_CHECKING:
    from colonnade.search.simulated import Result
    from colonnade.search.workers import Performer


def tune(
    config: ConfigLike,
    tables: Tables | None = None,
    *,
    trials: int = 50,
    metric: str = "",
    direction: str = "",
    space: Mapping[str, Any] | None = None,
    sets: tuple[str, ...] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    storage: str | None = None,
    timeout: float | None = None,
    pruner: str = "median",
    seed: int = 0,
    progress: bool = True,
) -> Search:
    """Searches for the configuration values that are best on the validation rows, by simulated runs.

    The same call resumes a search that has ended early. No trial evaluates the test rows.

    Args:
        config, tables: as for `colonnade.simulate`.
        trials: in total, including those of earlier calls.
        metric: a metric of the validation rows, such as `val_auc`; "" for the accuracy, or in a regression the RMSE.
        direction: `maximize` or `minimize`, for a metric of a plug-in.
        space: values to try by key, as in the section `search`; None for that section, or a default space.
        sets: changes of the configuration for all trials, KEY=VALUE.
        out: folder; default: runs/ID-tune.
        jobs: concurrent simulations, each in its own process; 1 runs them in this process.
        storage: database URL or `journal:PATH` of the trials, for several machines; default: a file in the folder.
        timeout: seconds after which no trial begins.
        pruner: `median`, `hyperband` or `none`: ends trials that fall behind others.
        progress: whether to print a line for every trial.

    Raises:
        ConfigError: a key or value of the configuration or the space is not allowed.
        InputError: the metric is of test rows or unknown, there are no validation rows, the folder is of another
            search, or all trials have failed.
        EnvironmentFault: Optuna is missing, or the folder or storage cannot be written.
    """
    load_optuna()
    given = GivenConfig.of(config, tables, sets)
    folder = SearchFolder(place_of(given, out, "tune"), "tune")
    plan = _Plan.read(given, given.placed(folder.tables), space, (metric, direction))
    refuse_fewer(trials=(trials, 1), jobs=(jobs, 1))
    if pruner not in PRUNERS:
        raise InputError(f"--pruner {pruner}: expected one of {', '.join(PRUNERS)}")
    identity = {**plan.identity, "seed": str(seed), "pruner": pruner}
    with own_settings(), showing(progress), folder.locked(), folder.with_tables(given):
        record = folder.settle(given, identity)
        pool_labels(plan.config, plan.base, None)  # refuses unusable ones before the first trial
        held = HeldTables(plan.config, plan.base, record["tables"])
        aligned = align_once(held, folder.aligned)
        url = storage or f"sqlite:///{folder.path / 'trials.db'}"
        name = f"{plan.config.federation.id}-{digest({**identity, **record['tables']})[:12]}"
        store = open_store(url, name, plan.space, plan.goal, place=record["place"], seed=seed, pruner=pruner)
        folder.write(record)
        lines = Lines(store, trials, show=progress)
        lines.begin(plan.usual, resumed=store.recover(), storage=masked(storage or ""))
        store.begin(own_values(plan.tree, plan.space))
        deadline = time.monotonic() + (timeout if timeout is not None else float("inf"))
        try:
            with lines.searching():
                _Loop(plan, store, lines, held, str(aligned or ""), trials, jobs, deadline).run()
        except BaseException:
            store.recover()  # queues running trials again
            raise
        return _leave(plan, store, lines, folder)


@dataclass(frozen=True)
class _Plan:
    """A search's configuration and space, checked."""

    tree: Tree
    base: Path
    config: Config
    space: tuple[Searched, ...]
    goal: SearchMetric
    usual: bool  # the space is that of defaults.py

    @classmethod
    def read(cls, given: GivenConfig, whole: Tree, space: Mapping[str, Any] | None, named: tuple[str, str]) -> _Plan:
        config = parse(whole)
        refuse_incomplete(config, given.where)
        goal = search_metric(*named, config.federation.task)
        refuse_unvalidated(config)
        tree = without_space(whole)
        wanted = read_space(space) if space else config.search
        searched = check_space(tree, wanted or default_space(tree))
        return cls(tree, given.base, config, searched, goal, usual=not wanted)

    @property
    def identity(self) -> dict[str, str]:
        """Digests of the parts that may not change within a search."""
        space = {one.key: one.values.model_dump(mode="json") for one in self.space}
        return {
            "configuration": digest(self.tree),
            "space": digest(space),
            "metric": self.goal.name,
        }


@dataclass
class _Loop:
    plan: _Plan
    store: TrialStore
    lines: Lines
    held: HeldTables
    aligned: str
    trials: int
    jobs: int
    deadline: float
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Runs trials until all are done or the time is over."""
        if len(self.store.counted()) >= self.trials:
            return
        try:
            share_out(range(self.jobs), self.jobs, self._work, self._stop.set)
        finally:
            self._stop.set()

    def _work(self, _job: int, performer: Performer) -> None:
        while not self._stop.is_set() and time.monotonic() < self.deadline:
            asked = self.store.ask(self.trials)
            if asked is None:
                return
            self._try(asked, performer)

    def _try(self, asked: Asked, performer: Performer) -> None:
        try:
            result = self._perform(asked, performer)
            value = result.metrics.get(self.plan.goal.metric)
            if value is None:
                raise _no_metric(self.plan.goal, result.metrics)
            tell = partial(self._tell, asked, result, value)
        except Exception as error:
            if not isinstance(error, ColonnadeError) and self.jobs > 1 and not self._stop.is_set():
                raise  # of this process, such as a lost storage: a worker's faults arrive as failures
            tell = partial(self.store.fail, asked, failure(error)[0])
        if not self._stop.is_set():
            self.held.check()
        if self._stop.is_set():
            return  # the search has ended; this trial is queued again
        tell()
        self.lines.ended(asked)

    def _tell(self, asked: Asked, result: Result, value: float) -> None:
        error = result.validation_errors.get(self.plan.goal.metric)
        about = {
            "error": error,
            "seconds": result.seconds,
            "round": result.round,
            "rounds": result.rounds,
            "payload": result.payload,
        }
        if result.ended:
            self.store.prune(asked, about)
        else:
            self.store.complete(asked, value, about)

    def _perform(self, asked: Asked, performer: Performer) -> Result:
        goal, own = self.plan.goal, self.plan.config.server

        def listen(number: int, metrics: Mapping[str, float], last: bool) -> bool:
            if self._stop.is_set():
                return False
            if goal.metric not in metrics:
                raise _no_metric(goal, metrics)
            return not self.store.report(asked, number, metrics[goal.metric]) or last

        tree = applied(self.plan.tree, asked.settings)
        threads = threads_each(self.jobs, own.threads if own else 0)
        task = Task(tree, str(self.plan.base), thorough=True, aligned=self.aligned, threads=threads)
        return performer.perform(task, listen)


def _no_metric(goal: SearchMetric, metrics: Mapping[str, float]) -> InputError:
    known = ", ".join(f"val_{name}" for name in metrics)
    return InputError(f"the validation rows have no {goal.name}", hint=f"there are {known}")


def _leave(plan: _Plan, store: TrialStore, lines: Lines, folder: SearchFolder) -> Search:
    records, best = store.records(), store.best()
    write_text(folder.path / "trials.csv", as_csv(records, [one.key for one in plan.space]))
    if best is None:
        raise _nothing(store)
    chosen = applied(plan.tree, best.settings)
    comment = _comment(plan, best.value or 0.0, looked(records))
    write_config(folder.path / "best.yaml", relocated(chosen, plan.base, folder.path), comment)
    own = store.first(own_values(plan.tree, plan.space))
    found = Search(folder.path, store, best, relocated(chosen, plan.base))
    write_text(found.page, tune_page(plan.config, store, best, own))
    lines.end(found, gain_words(best, own, plan.goal), private=is_private(plan.config))
    return found


def _nothing(store: TrialStore) -> ColonnadeError:
    failed = [record.reason for record in store.records() if record.state == "failed"]
    if not failed:
        return InputError("no trial has completed", hint="run the same command again, with a longer --timeout")
    reason, times = commonest(failed)
    return InputError(
        f"none of {len(failed)} trials has worked; {times} have failed with: {reason}",
        hint="run `colonnade simulate` with the file by itself first, or narrow the ranges of `search`",
    )


def _comment(plan: _Plan, value: float, times: int) -> str:
    return (
        f"The best of a search: {plan.goal.name} {value:.4f}. {times} trials have looked at the validation rows, so\n"
        "that their metrics are optimistic for new rows. The test rows were not looked at: a run of this file tests it."
    )
