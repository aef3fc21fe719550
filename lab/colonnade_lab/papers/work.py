"""Jobs that have no result yet, the processes that run them, and progress as they end."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext

from colonnade.common.errors import ColonnadeError, EnvironmentFault, InputError
from colonnade.common.run.activity import activity
from colonnade.common.run.python_child import safe_children
from colonnade.reports.console.outputs import refuse_unwritable
from colonnade.reports.console.screen import out as console
from colonnade.reports.words import counted
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.papers import Paper
from colonnade_lab.papers.results import Results, code_digest
from colonnade_lab.papers.running import Job, perform


def announce(wanted: list[Job], todo: list[Job], seeds: int, processes: int) -> None:
    how_long = f"{about(todo, processes)} by {counted(processes, 'process')}" if todo else ""
    rest = f"{len(todo)} to be run, {how_long}" if todo else "all are kept"
    console.say(f"{counted(len(wanted), 'run')} with {counted(seeds, 'seed')}: {rest}")


def run_missing(
    todo: list[Job],
    results: Results,
    processes: int,
    how: Callable[[Job], RunRecord] = perform,
    name: str = "{0.name}",
) -> list[str]:
    """Runs jobs, stores every record as it arrives, prints progress, and returns the names of failed runs."""
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


def jobs(papers: Iterable[tuple[str, Paper]], seeds: int, *, wire: bool) -> list[Job]:
    """Every run with every seed: the first seed of all, shortest run first, then the second."""
    found = [
        Job(name, run, paper.runs[run], seed, wire)
        for name, paper in papers
        for run in dict.fromkeys(run for table in paper.tables.values() for run in table.runs)
        for seed in range(seeds)
    ]
    return sorted(found, key=lambda job: (job.seed, job.run.minutes))


def missing(wanted: Iterable[Job], results: Results) -> list[Job]:
    return [job for job in wanted if results.get(job) is None]


def minutes(wanted: Iterable[Job], processes: int) -> float:
    """Approximate total duration, no less than the longest job."""
    each = [job.run.minutes for job in wanted]
    return max(sum(each) / processes, max(each, default=0.0))


def about(wanted: Iterable[Job], processes: int) -> str:
    estimate = minutes(wanted, processes)
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
