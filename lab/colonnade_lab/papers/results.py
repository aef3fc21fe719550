"""Stored results (results.json by default), one record per run and seed; the jobs that have none yet, and the processes
that run them. Stored runs are not repeated.
"""

from __future__ import annotations

import ast
import hashlib
import json
import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cache
from multiprocessing.context import BaseContext
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

import colonnade
from colonnade.common.errors import ColonnadeError, EnvironmentFault, InputError
from colonnade.common.run.activity import activity
from colonnade.common.run.files import alone_in
from colonnade.common.run.python_child import safe_children
from colonnade.reports.console.outputs import refuse_unwritable, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.papers import Paper
from colonnade_lab.papers.running import Job, perform

_ROOT = Path(colonnade.__file__).parent
_FOLDERS = ("client", "common", "server", "simulation")


@cache
def code_digest() -> str:
    """Digest of this process's code. The first call takes about a second and fixes it."""
    return digest_of(_ROOT)


def digest_of(root: Path) -> str:
    """Digest of the source files below `root` that a result may depend on: protocols, numerics, data, simulation.

    Comments, docstrings and layout do not count. Another minor version of Python gives another digest.
    """
    found = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            found.update(path.relative_to(root).as_posix().encode())
            found.update(ast.dump(_bare(ast.parse(path.read_text(encoding="utf-8")))).encode())
    return found.hexdigest()[:12]


def _bare(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _text(each)] or [ast.Pass()]
    return tree


def _text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


NAME = "results.json"


class KeptResult(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    digest: str
    record: RunRecord
    code: str | None = None

    @property
    def made_by(self) -> str:
        """Version and code digest that produced it; older results have no digest."""
        version = self.record.version or "an unknown version"
        return f"{version}, code {self.code}" if self.code else version


_FILE = TypeAdapter(dict[str, KeptResult])


class Results:
    """All records of a folder. Raises InputError if the file exists and cannot be read."""

    def __init__(self, folder: Path, name: str = NAME) -> None:
        self.path = folder / name
        self._kept = self._read()

    def get(self, job: Job) -> RunRecord | None:
        """Record of a run; None if there is none, or it is of another configuration."""
        kept = self._found(job)
        return None if kept is None else kept.record

    def made_by(self, job: Job) -> str:
        """Version and code that produced a record, "" if there is none. Results of other code count as well."""
        kept = self._found(job)
        return "" if kept is None else kept.made_by

    def seeds(self, paper: str) -> int:
        """One more than the highest stored seed of a paper's list; 0 if there is none."""
        found = [key.rpartition("/")[2] for key in self._kept if key.startswith(f"{paper}/")]
        return max((int(seed) + 1 for seed in found if seed.isdecimal()), default=0)

    def keep(self, job: Job, record: RunRecord) -> None:
        """Stores a record on disk, and keeps records that other commands have stored there since."""
        with alone_in(self.path.parent):
            made = KeptResult(digest=job.digest, code=code_digest(), record=record)
            self._kept = self._read() | {_key(job): made}
            tree = {key: self._kept[key].model_dump(mode="json", exclude_none=True) for key in sorted(self._kept)}
            lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in tree.items())
            write_text(self.path, f"{{\n{lines}\n}}\n")

    def _found(self, job: Job) -> KeptResult | None:
        kept = self._kept.get(_key(job))
        return kept if kept is not None and kept.digest == job.digest else None

    def _read(self) -> dict[str, KeptResult]:
        if not self.path.is_file():
            return {}
        try:
            return _FILE.validate_python(json.loads(self.path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as wrong:
            hint = "name another folder with --out, or delete the file"
            raise InputError(f"{self.path}: {_said(wrong)}", hint=hint) from None


def _said(wrong: Exception) -> str:
    if not isinstance(wrong, ValidationError):
        return str(wrong).splitlines()[0]
    first = wrong.errors(include_url=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")


def _key(job: Job) -> str:
    return f"{job.paper}/{job.name}/{job.seed}"


@dataclass(frozen=True)
class RunOptions:
    """Options of the commands that run a list: `which` names a part of it, "" all; with `only_list` nothing runs.

    With `quick` the quick looks of the papers run instead of the tables.
    """

    which: str
    seeds: int
    out: Path
    processes: int
    only_list: bool = False
    quick: bool = False
    plan: Path | None = None

    def label(self, paper: str) -> str:
        """Key of a paper's stored results; quick looks have another one, as their runs have the same names."""
        return f"quick-{paper}" if self.quick else paper


def run_missing(
    wanted: list[Job],
    results: Results,
    options: RunOptions,
    how: Callable[[Job], RunRecord] = perform,
    name: str = "{0.name}",
) -> list[str]:
    """Says what is missing and runs it, stores every record as it arrives, and returns the names of failed runs."""
    todo, processes = missing(wanted, results), options.processes
    how_long = f"{about(todo, processes)} by {counted(processes, 'process')}" if todo else ""
    rest = f"{len(todo)} to be run, {how_long}" if todo else "all are kept"
    console.say(f"{counted(len(wanted), 'run')} with {counted(options.seeds, 'seed')}: {rest}")
    if options.only_list:
        return []
    if todo:
        refuse_unwritable(results.path.parent)
    failed = []
    code_digest()  # fixes the digest now, in case files are edited during the runs
    with activity("running", len(todo), "runs") as doing:
        for job, outcome in run_all(todo, processes, how):
            doing.step()
            said = f"{name.format(job)}, seed {job.seed}"
            if isinstance(outcome, ColonnadeError):
                failed.append(said)
                console.say(f"{said}: {outcome}", "red")
                if outcome.hint:
                    console.say(f"    {outcome.hint}", "dim")
                continue
            results.keep(job, outcome)
            accuracy = outcome.metrics.get("test_accuracy")
            found = "" if accuracy is None else f" {accuracy:.2%}"
            console.say(f"[{doing.done}/{len(todo)}] {said}:{found} in {outcome.wall:.1f} s", "dim")
    return failed


def refuse_failed(failed: list[str]) -> None:
    if failed:
        hint = "the others are kept; run the command again to try these once more"
        rest = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        raise InputError(f"{len(failed)} runs have failed: {', '.join(failed[:5])}{rest}", hint=hint)


def jobs(papers: Iterable[tuple[str, Paper]], seeds: int) -> list[Job]:
    """Every run with every seed: the first seed of all, shortest run first, then the second."""
    found = [
        Job(name, run, paper.runs[run], seed)
        for name, paper in papers
        for run in dict.fromkeys(run for table in paper.tables.values() for run in table.runs)
        for seed in range(seeds)
    ]
    return sorted(found, key=lambda job: (job.seed, job.run.minutes))


def missing(wanted: Iterable[Job], results: Results) -> list[Job]:
    return [job for job in wanted if results.get(job) is None]


def about(wanted: Iterable[Job], processes: int) -> str:
    """Approximate total duration, no less than the longest job."""
    each = [job.run.minutes for job in wanted]
    estimate = max(sum(each) / processes, max(each, default=0.0))
    if estimate > 90:
        return f"about {estimate / 60:.1f} hours"
    return f"about {counted(max(1, round(estimate)), 'minute')}"


def run_all(
    wanted: list[Job], processes: int, how: Callable[[Job], RunRecord] = perform
) -> Iterator[tuple[Job, RunRecord | ColonnadeError]]:
    """Runs jobs, `processes` at a time, and yields each as it ends, or the error that ended it."""
    with safe_children(), ThreadPoolExecutor(processes) as pool:
        under_way: dict[Future[RunRecord | ColonnadeError], Job] = {
            pool.submit(_apart, job, how): job for job in wanted
        }
        try:
            for done in as_completed(under_way):
                yield under_way[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for unfinished in multiprocessing.active_children():
                unfinished.terminate()


def _apart(job: Job, how: Callable[[Job], RunRecord]) -> RunRecord | ColonnadeError:
    """Runs a job in a separate process, so that a kill affects no other."""
    try:
        with ProcessPoolExecutor(1, mp_context=_context(how.__module__)) as alone:
            return alone.submit(outcome_of, job, how).result()
    except BrokenProcessPool:
        return EnvironmentFault("its process was killed", hint="if memory is short, give --processes 1")


def _context(module: str) -> BaseContext:
    """Context whose processes fork from one that has imported this module and has computed nothing.

    A fork of the caller would lack torch's threads; a fresh process takes seconds to import.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([module])
    return forks


def outcome_of(job: Job, how: Callable[[Job], RunRecord]) -> RunRecord | ColonnadeError:
    """Returns the record, or the error as text, since not all errors can be pickled.

    A bug ends this run and no other; its traceback is printed at once.
    """
    try:
        return how(job)
    except ColonnadeError as failed:
        return EnvironmentFault(str(failed), hint=failed.hint)
    except Exception as fault:  # noqa: BLE001  # no error may stop later runs
        traceback.print_exc()
        return EnvironmentFault(f"a fault of the program: {fault!r}", hint="report it with the lines above")
