"""Stores runs as they end, and reports progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from colonnade.common.errors import ColonnadeError, InputError
from colonnade.reports.console.screen import out as console
from colonnade_lab.papers.code import code_digest
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.results import Results
from colonnade_lab.papers.running import Job


def keep_all(
    outcomes: Iterable[tuple[Job, RunRecord | ColonnadeError]], of: int, results: Results, name: Callable[[Job], str]
) -> list[str]:
    """Stores every record as it arrives, prints progress, and returns the names of failed runs."""
    failed, begun = [], time.monotonic()
    code_digest()  # fixes the digest now, in case files are edited during the runs
    for number, (job, outcome) in enumerate(outcomes, 1):
        said = f"{name(job)}, seed {job.seed}"
        place = f"[{number}/{of}, {(time.monotonic() - begun) / 60:.1f} min]"
        if isinstance(outcome, ColonnadeError):
            failed.append(said)
            console.print(f"{place} {said}: {outcome}", style="red", markup=False, soft_wrap=True)
            if outcome.hint:
                console.print(f"    {outcome.hint}", style="dim", markup=False, soft_wrap=True)
            continue
        results.keep(job, outcome)
        accuracy = outcome.metrics.get("test_accuracy")
        found = "" if accuracy is None else f" {accuracy:.2%}"
        line = f"{place} {said}:{found} in {outcome.wall:.1f} s"
        console.print(line, style="dim", markup=False, soft_wrap=True)
    return failed


def refuse_failed(failed: list[str]) -> None:
    if failed:
        hint = "the others are kept; run the command again to try these once more"
        rest = f" and {len(failed) - 5} more" if len(failed) > 5 else ""
        raise InputError(f"{len(failed)} runs have failed: {', '.join(failed[:5])}{rest}", hint=hint)
