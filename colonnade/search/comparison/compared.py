"""`compare`: protocols on a given configuration, each with its defaults and tuned."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import NAMES, OUTSIDE
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import EnvironmentFault, InputError, nearest
from colonnade.common.parsing.file import parse
from colonnade.common.run.activity import Activity, activity
from colonnade.common.run.own_settings import own_settings
from colonnade.launcher.configuration import ConfigLike, GivenConfig
from colonnade.launcher.readiness import refuse_incomplete
from colonnade.reports.console.live import showing
from colonnade.reports.console.screen import out as console
from colonnade.search.comparison.adapting import EPSILON, GivenSetup
from colonnade.search.comparison.outcomes import (
    DONE,
    FAILED,
    LOST,
    KeptRun,
    ProtocolOutcome,
    ReferenceOutcome,
    RunShelf,
)
from colonnade.search.comparison.outputs import ComparisonOutput
from colonnade.search.comparison.pair import PairRuns
from colonnade.search.comparison.subject import Subject, read_subject
from colonnade.search.folder import (
    SearchFolder,
    Tables,
    place_of,
    refuse_fewer,
    refuse_unvalidated,
)
from colonnade.search.metrics import SearchMetric, search_metric
from colonnade.search.references import ALONE, BOOSTING, REFERENCES, ReferenceTask
from colonnade.search.simulated import failure
from colonnade.search.space import without_space
from colonnade.search.study import load_optuna
from colonnade.search.workers import share_out

if TYPE_CHECKING:
    import pyarrow as pa

    from colonnade.search.workers import Performer


LEFT_OUT = ("local", "centralized")
"""Protocols that share nothing or everything: not compared unless they are named."""


class Comparison:
    """A completed comparison.

    Attributes:
        metric: such as `auc`, of validation rows (`_val`) and test rows (`_test`).
    """

    def __init__(self, output: ComparisonOutput) -> None:
        self._output = output
        self.folder, self.metric = output.folder, output.goal.metric

    @property
    def table(self) -> pa.Table:
        """One row per protocol: status, values with defaults and tuned, gaps, settings, costs, reasons."""
        return self._output.arrow()

    @property
    def references(self) -> pa.Table:
        """One row per model of the joined columns."""
        return self._output.arrow_references()

    @property
    def page(self) -> Path:
        return self.folder / "comparison.html"

    def __repr__(self) -> str:
        return f"<colonnade.Comparison {self.folder}: {self.metric} of {len(self._output.outcomes)} protocols>"

    def _repr_html_(self) -> str:
        return self._output.page.fragment()


def compare(
    config: ConfigLike,
    tables: Tables | None = None,
    *,
    protocols: Sequence[str] | None = None,
    trials: int = 10,
    jobs: int = 1,
    rows: int | None = None,
    seeds: int = 1,
    metric: str = "",
    keep_models: bool = False,
    epsilon: float = EPSILON,
    sets: tuple[str, ...] = (),
    out: str | Path | None = None,
    progress: bool = True,
) -> Comparison:
    """Compares protocols on one configuration's data: each with its defaults, and with the best values of a search.

    All runs are simulated. A comparison uses only the configuration's data, labels, rows, length, batch, seed and class
    weights; settings of its own protocol are dropped, so that every protocol has its defaults. Finished runs are
    stored: the same call resumes, and makes only missing runs. Protocols that were compared in this folder before keep
    their rows if all of their runs are stored for the same data, options and version.

    Args:
        config, tables: as for `colonnade.simulate`.
        protocols: names; None for all built-in ones but `local` and `centralized`.
        trials: number of trials in each protocol's search on validation rows, without its defaults; 0 for the defaults
            alone.
        jobs: concurrent simulations, each in its own process; 1 runs them in this process.
        rows: maximum number of training and validation rows together, and of test rows; None for all.
        seeds: number of runs on test rows; the search uses the first seed.
        metric: such as `auc` or `val_auc`; "" for one that fits the training labels.
        keep_models: whether to use models and heads of the configuration too.
        epsilon: budget of `vfl_afe`, which needs `federation.privacy`.
        sets: changes of the configuration, KEY=VALUE.
        out: folder; default: runs/ID-compare.
        progress: whether to print lines and the table.

    Raises:
        ConfigError: a key or value of the configuration is not allowed.
        InputError: a protocol or metric is unknown, or there are no validation or test rows.
        DataError: the data are not usable.
        EnvironmentFault: Optuna is missing, or the folder cannot be written.
    """
    names = chosen(protocols)
    refuse_fewer(trials=(trials, 0), jobs=(jobs, 1), seeds=(seeds, 1), rows=(rows, 10))
    if trials:
        load_optuna()
    given = GivenConfig.of(config, tables, sets)
    folder = SearchFolder(place_of(given, out, "compare"), "comparison")
    tree = without_space(given.placed(folder.tables))
    parsed = parse(tree)
    refuse_incomplete(parsed, given.where)
    refuse_unvalidated(parsed)
    wanted = _metric(metric, parsed)
    with own_settings(), showing(progress), folder.locked(), folder.with_tables(given):
        given.write_tables(folder.tables)
        subject = read_subject(parsed, given.base, folder.path / "data", rows)
        shelf, (name, why) = RunShelf(folder.path / "runs", subject.digest), subject.metric
        goal, why = (wanted, "--metric") if wanted else (_fitting(name, parsed), why)
        line = _Counted(dict.fromkeys(names, _runs(trials, seeds)), show=progress)
        setup = GivenSetup.of(tree, given.base, subject, keep_models=keep_models, epsilon=epsilon)
        runs = PairRuns(setup, shelf, goal, trials, seeds, ran=line.ran)
        fresh = [ProtocolOutcome(name) for name in names]
        earlier = {name: runs.restored(name) for name in _compared(folder.path) if name not in names}
        output = ComparisonOutput(
            folder.path, parsed.federation.id, goal, why, subject.plain(), setup.dropped,
            options={"trials": trials, "seeds": seeds, "rows": rows},
            outcomes=[*fresh, *(found for found in earlier.values() if found is not None)],
        )  # fmt: skip
        output.write()
        for name, found in earlier.items():
            if progress and found is None:
                said = f"{name}: its row is left out: with these data, options and version it has no complete runs"
                console.say(said)
        if progress:
            console.say(f"{output.heading}; at most {len(names) * _runs(trials, seeds)} runs", "dim")
        with line.running():
            _Pairs(runs, output, fresh, line).run(jobs)
        output.write()
        if progress:
            output.show()
    return Comparison(output)


def _compared(folder: Path) -> tuple[str, ...]:
    """Protocols of the comparison in the folder, in its order; none without one."""
    try:
        found = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))["protocols"]
        names = [line["protocol"] for line in found]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple(name for name in dict.fromkeys(map(str, names)) if name in NAMES or name in OUTSIDE.entries)


def chosen(protocols: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(protocols or ()))
    known = (*NAMES, *OUTSIDE.entries)
    for name in names:
        if name not in known:
            raise InputError(f"no protocol {name!r}{nearest(name, known)}", hint=f"there are {', '.join(known)}")
    return names or tuple(name for name in NAMES if name not in LEFT_OUT)


def _metric(wanted: str, config: Config) -> SearchMetric | None:
    if not wanted:
        return None
    named = wanted if wanted.startswith(("val_", "test_")) else f"val_{wanted}"
    return search_metric(named, "", config.federation.task)


def _fitting(name: str, config: Config) -> SearchMetric:
    """The metric of this name, or the AUC if runs do not have it."""
    try:
        return search_metric(f"val_{name}", "", config.federation.task)
    except InputError:
        return search_metric("val_auc", "", config.federation.task)


def _runs(trials: int, seeds: int) -> int:
    return seeds + (trials + seeds if trials else 0)


class _Counted:
    """Counts runs, as an activity with the time left.

    Args:
        runs: at most, by protocol.
        show: whether to print results.
    """

    def __init__(self, runs: Mapping[str, int], *, show: bool) -> None:
        self._to_go, self._show = dict(runs), show
        self._doing = Activity("comparing")
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[None]:
        with activity("comparing", sum(self._to_go.values()), "runs") as self._doing:
            yield

    def ran(self, protocol: str, kept: bool) -> None:
        """Counts a run of a protocol, stored before or made now."""
        with self._lock:
            self._to_go[protocol] = max(self._to_go.get(protocol, 0) - 1, 0)
            self._doing.done += 1
            self._doing.kept += kept
            self._update()

    def ended(self, outcome: ProtocolOutcome, said: str) -> None:
        """Prints the result of a protocol, which makes no further runs."""
        with self._lock:
            self._to_go.pop(outcome.name, None)
            self._update()
        if self._show:
            console.say(f"{outcome.name}: {said}", "dim" if outcome.status == "ok" else "yellow")

    def _update(self) -> None:
        self._doing.total = self._doing.done + sum(self._to_go.values())


@dataclass
class _Pairs:
    """Runs all protocols and references, some at a time."""

    runs: PairRuns
    output: ComparisonOutput
    fresh: list[ProtocolOutcome]
    line: _Counted
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: int) -> None:
        """Completes everything, writing the files after every protocol."""
        known = [name for name in REFERENCES if name != ALONE or SERVER in self.runs.given.subject.shapes]
        todo = [*(("reference", name) for name in known), *(("protocol", o) for o in self.fresh)]
        share_out(todo, jobs, self._one, self.runs.stop.set)

    def _one(self, task: tuple[str, Any], worker: Performer) -> None:
        kind, what = task
        if kind == "reference":
            self._reference(what, worker)
        else:
            self.runs.complete(what, worker)
            self.line.ended(what, self.output.words(what))
        with self._lock:
            self.output.write()

    def _reference(self, name: str, worker: Performer) -> None:
        run = reference_run(name, self.runs.given.subject, self.runs.shelf, self.runs.goal, worker)
        with self._lock:
            self.output.references.append(ReferenceOutcome(name, *REFERENCES[name], run))
            self.output.references.sort(key=lambda found: list(REFERENCES).index(found.name))


def reference_run(name: str, subject: Subject, shelf: RunShelf, goal: SearchMetric, performer: Performer) -> KeptRun:
    """Runs a reference, one of REFERENCES, on a comparison's data, or returns its stored result.

    Args:
        goal: metric that decides when it ends.
    """
    key = shelf.reference_key(name, goal.metric, 0)
    if (kept := shelf.get(key)) is not None:
        return kept
    members = (SERVER,) if name == ALONE else tuple(subject.shapes)
    columns = tuple(str(subject.columns(member)) for member in members)
    task = ReferenceTask(
        BOOSTING if name == ALONE else name,
        columns,
        str(subject.label_file),
        str(subject.parts),
        subject.regression,
        goal.metric,
        goal.direction,
    )
    try:
        result = performer.perform(task, lambda _number, _metrics, _last: True)
    except Exception as error:  # noqa: BLE001  # no error may stop other runs
        if isinstance(error, EnvironmentFault):
            return KeptRun(LOST, str(error))
        reason, hint = failure(error)
        run = KeptRun(FAILED, f"{reason} ({hint})" if hint else reason)
    else:
        run = KeptRun(DONE, "", result)
    shelf.keep(key, run, {"reference": name})
    return run
