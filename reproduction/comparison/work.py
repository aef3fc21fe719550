"""The runs, a few at a time, in processes that stay: they are too short to begin one for each."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

from colonnade.common.errors import ColonnadeError, EnvironmentFault
from colonnade.reproduction.comparison.attacked import attack
from colonnade.reproduction.comparison.plan import ATTACKED
from colonnade.reproduction.papers.measures import Record
from colonnade.reproduction.papers.running import Job, perform
from colonnade.reproduction.papers.work import context, told


def run_all(wanted: list[Job], processes: int) -> Iterator[tuple[Job, Record | ColonnadeError]]:
    """Runs them, and yields each as it ends, or the error that ended it. One process is this one.

    Raises:
        EnvironmentFault: a process was killed.
    """
    if processes == 1:
        yield from ((job, _told(job)) for job in wanted)
        return
    with ProcessPoolExecutor(processes, mp_context=context(__name__)) as pool:
        under_way = {pool.submit(_told, job): job for job in wanted}
        try:
            for done in as_completed(under_way):
                yield under_way[done], done.result()
        except BrokenProcessPool:
            hint = "if memory is short, give --processes 1; what has ended is kept"
            raise EnvironmentFault("a process of the comparison was killed", hint=hint) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _told(job: Job) -> Record | ColonnadeError:
    return told(job, attack if job.name.endswith(f"/{ATTACKED}") else perform)
