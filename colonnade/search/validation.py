"""`cv`: cross-validation of a configuration, by simulated runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from colonnade.common.config.members import Config
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import parse
from colonnade.common.run.activity import Activity, activity
from colonnade.common.run.own_settings import own_settings
from colonnade.launcher.configuration import ConfigLike, GivenConfig
from colonnade.launcher.readiness import refuse_incomplete
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.live import showing
from colonnade.reports.console.outputs import write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade.search.folder import SearchFolder, Tables, digest, place_of, refuse_fewer
from colonnade.search.folds import HeldTables, align_once, folds_of, pool_labels
from colonnade.search.found import rows_fragment
from colonnade.search.metrics import SearchMetric, fold_metric
from colonnade.search.pages import FOLDS_PRIVACY, FoldRecord, cv_page, is_private, say_folds
from colonnade.search.simulated import Task
from colonnade.search.space import Tree, without_space
from colonnade.search.workers import share_out, threads_each

if TYPE_CHECKING:
    from colonnade.search.folds import Fold
    from colonnade.search.workers import Performer


class Validation:
    """A completed cross-validation.

    Attributes:
        metric: its name, such as `auc`, of the rows that a fold holds out.
        mean: over all folds.
        deviation: sample standard deviation over folds. Folds share training rows, so it is no standard error.
    """

    def __init__(self, folder: Path, metric: str, records: Sequence[FoldRecord]) -> None:
        self.folder, self.metric, self._records = folder, metric, tuple(records)
        values = [record.metrics[metric] for record in records]
        self.mean, self.deviation = mean(values), stdev(values)

    @property
    def page(self) -> Path:
        """Path of cv.html."""
        return self.folder / "cv.html"

    @property
    def folds(self) -> pa.Table:
        """One row per fold: repeat, fold, rows held out, seconds, and a column per metric."""
        names = dict.fromkeys(name for record in self._records for name in record.metrics)
        return pa.table({
            "repeat": [record.repeat for record in self._records],
            "fold": [record.fold for record in self._records],
            "rows": [record.rows for record in self._records],
            "seconds": [record.seconds for record in self._records],
            **{name: [record.metrics.get(name) for record in self._records] for name in names},
        })  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"<colonnade.Validation {self.folder}: {self.metric} {self.mean:.4f}, deviation {self.deviation:.4f} "
            f"over {counted(len(self._records), 'fold')}>"
        )

    def _repr_html_(self) -> str:
        said = f"{self.metric}: mean {self.mean:.4f}, standard deviation {self.deviation:.4f} over "
        rows = [(one.repeat, one.fold, one.rows, f"{one.metrics[self.metric]:.4f}") for one in self._records]
        return rows_fragment(said + counted(len(rows), "fold"), ("repeat", "fold", "rows held out", self.metric), rows)


def cv(
    config: ConfigLike,
    tables: Tables | None = None,
    *,
    folds: int = 5,
    repeats: int = 1,
    stratified: bool | None = None,
    metric: str = "",
    sets: tuple[str, ...] = (),
    out: str | Path | None = None,
    jobs: int = 1,
    seed: int = 0,
    progress: bool = True,
) -> Validation:
    """Cross-validates a configuration by simulated runs, one per fold, each tested on the rows that the fold holds out.

    The same call resumes a cross-validation that has ended early. A data set's own test rows take no part.

    Args:
        config, tables: as for `colonnade.simulate`.
        folds: number of parts of the rows, each held out once.
        repeats: number of times that all rows are split into folds.
        stratified: whether every fold has about the same share of every class; None for yes if there are classes.
        metric: such as `auc`; "" for the accuracy, or in a regression the RMSE.
        sets: changes of the configuration, KEY=VALUE.
        out: folder; default: runs/ID-cv.
        jobs: concurrent simulations, each in its own process; 1 runs them in this process.
        seed: seed of the split into folds.
        progress: whether to print a line for every fold.

    Raises:
        ConfigError: a key or value of the configuration is not allowed.
        InputError: the metric is unknown, the folder is of another cross-validation, or there are too few rows.
        ColonnadeError: as a run of a fold.
    """
    given = GivenConfig.of(config, tables, sets)
    folder = SearchFolder(place_of(given, out, "cv"), "cv")
    whole, base = given.placed(folder.tables), given.base
    parsed = parse(whole)
    refuse_incomplete(parsed, given.where)
    goal = fold_metric(metric, parsed.federation.task)
    evenly = _stratified(parsed, stratified)
    refuse_fewer(folds=(folds, 2), repeats=(repeats, 1), jobs=(jobs, 1))
    tree = without_space(whole)
    splits = {"folds": folds, "repeats": repeats, "seed": seed, "stratified": evenly}
    with own_settings(), showing(progress), folder.locked(), folder.with_tables(given):
        record = folder.settle(given, {"configuration": digest(tree), "division": digest(splits)})
        held = HeldTables(parsed, base, record["tables"])
        aligned = align_once(held, folder.aligned)
        labels = pool_labels(parsed, base, aligned)
        drawn = list(folds_of(labels, folds, repeats, seed, stratified=evenly))
        run = _Folds(tree, held, folder, goal, "" if aligned is None else str(aligned), record, show=progress)
        run.perform(drawn, jobs)
        return run.leave(splits)


def _stratified(config: Config, wanted: bool | None) -> bool:
    classes = config.federation.task == "classification"
    if wanted and not classes:
        raise InputError("--stratified with federation.task = regression: there are no classes", hint="leave it out")
    return classes if wanted is None else wanted


@dataclass
class _Folds:
    """The folds of a cross-validation; completed ones are stored in the folder."""

    tree: Tree
    held: HeldTables
    folder: SearchFolder
    goal: SearchMetric
    aligned: str
    record: dict[str, Any]
    show: bool
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _doing: Activity = field(init=False)

    @property
    def kept(self) -> list[FoldRecord]:
        found = [FoldRecord(**each) for each in self.record.get("each", ())]
        return sorted(found, key=lambda record: (record.repeat, record.fold))

    def perform(self, drawn: Sequence[Fold], jobs: int) -> None:
        """Runs the folds that are not stored yet."""
        done = {(record.repeat, record.fold) for record in self.kept}
        todo = [fold for fold in drawn if (fold.repeat, fold.number) not in done]
        if done:
            self._say(f"goes on after {counted(len(done), 'fold')}")
        with activity("cross-validating", len(drawn), "folds") as self._doing:
            self._doing.done = self._doing.kept = len(done)
            share_out(todo, jobs, lambda fold, performer: self._run(fold, performer, jobs))

    def _run(self, fold: Fold, performer: Performer, jobs: int) -> None:
        result = performer.perform(self._task(fold, jobs), lambda _number, _metrics, _last: True)
        self.held.check()
        if self.goal.metric not in result.metrics:
            raise InputError(
                f"fold {fold.number} of repeat {fold.repeat} has no {self.goal.metric}",
                hint=f"there are {', '.join(result.metrics)}",
            )
        made = FoldRecord(fold.repeat, fold.number, len(fold.held), dict(result.metrics), result.seconds)
        with self._lock:
            self.record.setdefault("each", []).append(asdict(made))
            self.folder.write(self.record)
        value = f"{self.goal.metric} {made.metrics[self.goal.metric]:.4f}"
        self._doing.step()
        self._doing.facts = (value,)
        self._say(f"repeat {fold.repeat}, fold {fold.number}: {value} on {made.rows} rows in {made.seconds:.1f} s")

    def _task(self, fold: Fold, jobs: int) -> Task:
        own = self.held.config.server
        return Task(
            self.tree,
            str(self.held.base),
            part="test",
            thorough=self.held.config.federation.stop is not None,
            aligned=self.aligned,
            held=tuple(fold.held.tolist()),
            threads=threads_each(jobs, own.threads if own else 0),
        )

    def leave(self, splits: Mapping[str, Any]) -> Validation:
        records = self.kept
        found = Validation(self.folder.path, self.goal.metric, records)
        self.record |= {
            **splits, "metric": found.metric, "mean": found.mean, "deviation": found.deviation,
            "each": [asdict(record) for record in records],
        }  # fmt: skip
        self.folder.write(self.record)
        write_text(found.page, cv_page(self.held.config, self.goal.metric, records, splits))
        if self.show:
            console.show(_table(found, records))
            for line in say_folds(found.metric, records):
                self._say(line, "")
            if is_private(self.held.config):
                self._say(FOLDS_PRIVACY, "yellow")
            console.point("page", found.page)
        return found

    def _say(self, text: str, style: str = "dim") -> None:
        if self.show:
            console.say(text, style)


def _table(found: Validation, records: Sequence[FoldRecord]) -> Grid:
    table = Grid("repeat", "fold", "rows held out", found.metric, title=f"{found.metric} of the rows held out")
    for record in records:
        place = (str(record.repeat), str(record.fold), str(record.rows))
        table.add_row(*place, f"{record.metrics[found.metric]:.4f}")
    return table
