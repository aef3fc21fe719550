"""Jobs that are not run yet, and the processes that run them."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext

from colonnade.common.errors import ColonnadeError, EnvironmentFault
from colonnade.common.runtime.python_child import safe_children
from colonnade.reports.words import counted
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.papers import Paper
from colonnade_lab.papers.results import Results
from colonnade_lab.papers.running import Job, perform


def jobs(papers: Iterable[tuple[str, Paper]], seeds: int, *, wire: bool) -> list[Job]:
    """Every run with every seed: the first seed of all, the shortest run first, then the second."""
    found = [
        Job(name, run, paper.runs[run], seed, wire)
        for name, paper in papers
        for run in dict.fromkeys(run for table in paper.tables.values() for run in table.runs)
        for seed in range(seeds)
    ]
    return sorted(found, key=lambda job: (job.seed, job.run.minutes))


def missing(wanted: Iterable[Job], results: Results) -> list[Job]:
    """Jobs without a stored result."""
    return [job for job in wanted if results.get(job) is None]


def minutes(wanted: Iterable[Job], processes: int) -> float:
    """About how long they take together: no less than the longest takes by itself."""
    each = [job.run.minutes for job in wanted]
    return max(sum(each) / processes, max(each, default=0.0))


def about(wanted: Iterable[Job], processes: int) -> str:
    """The same in words, of runs of which there is one at least."""
    estimate = minutes(wanted, processes)
    if estimate > 90:
        return f"about {estimate / 60:.1f} hours"
    return f"about {counted(max(1, round(estimate)), 'minute')}"


def run_all(
    wanted: list[Job], processes: int, how: Callable[[Job], RunRecord] = perform
) -> Iterator[tuple[Job, RunRecord | ColonnadeError]]:
    """Runs them, so many at a time, and yields each as it ends, or the error that ended it."""
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
    """Runs it in a process of its own: one that is killed takes no other with it."""
    try:
        with ProcessPoolExecutor(1, mp_context=_context(how.__module__)) as alone:
            return alone.submit(outcome_of, job, how).result()
    except BrokenProcessPool:
        return EnvironmentFault("its process was killed", hint="if memory is short, give --processes 1")


def _context(module: str) -> BaseContext:
    """Of processes that are forked from one which has imported this module, and has computed nothing yet.

    A fork of the caller would be without torch's threads; a process from nothing imports for seconds.
    """
    forks = multiprocessing.get_context("forkserver")
    forks.set_forkserver_preload([module])
    return forks


def outcome_of(job: Job, how: Callable[[Job], RunRecord]) -> RunRecord | ColonnadeError:
    """The record, or what is wrong in words: errors of all kinds do not travel between processes.

    A fault of the program ends this run and no other; where it happened is printed at once.
    """
    try:
        return how(job)
    except ColonnadeError as failed:
        return EnvironmentFault(str(failed), hint=failed.hint)
    except Exception as fault:  # noqa: BLE001  # whatever it is, the runs after it go on
        traceback.print_exc()
        return EnvironmentFault(f"a fault of the program: {fault!r}", hint="report it with the lines above")
