"""Runs of the references, stored like those of protocols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.common.errors import EnvironmentFault
from colonnade.search.comparison.kept_runs import DONE, FAILED, LOST, KeptRun, RunShelf
from colonnade.search.comparison.subject import Subject
from colonnade.search.metrics import SearchMetric
from colonnade.search.references import ReferenceTask
from colonnade.search.simulated import failure

if TYPE_CHECKING:
    from colonnade.search.workers import Performer


def reference_run(name: str, subject: Subject, shelf: RunShelf, goal: SearchMetric, performer: Performer) -> KeptRun:
    """Runs a reference, one of REFERENCES, on a comparison's data, or returns its stored result.

    Args:
        goal: metric that decides when it ends.
    """
    key = shelf.reference_key(name, goal.metric, 0)
    if (kept := shelf.get(key)) is not None:
        return kept
    columns = tuple(str(subject.columns(member)) for member in subject.shapes)
    task = ReferenceTask(
        name, columns, str(subject.label_file), str(subject.parts), subject.regression, goal.metric, goal.direction
    )
    try:
        result = performer.perform(task, lambda _number, _metrics, _last: True)
    except Exception as error:  # noqa: BLE001  # no error may stop other runs
        if isinstance(error, EnvironmentFault):
            return KeptRun(LOST, str(error))
        reason, hint = failure(error)
        run = KeptRun(FAILED, f"{reason} ({hint})" if hint else reason)
    else:
        run = KeptRun(
            DONE, "", result.metrics, result.tested, (), result.round, result.rounds, result.seconds, 0,
            result.errors, result.chance,
        )  # fmt: skip
    shelf.keep(key, run, {"reference": name})
    return run
