"""`colonnade scorecard`: how well the scores of a two-class run separate people, and what a cut-off comes to."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, refuse_unwritable_file, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.scorecard.findings import find
from colonnade.reports.scorecard.page import page, show


def scorecard(
    run: Path, cut_off: float | None, groups: str, scores: Path | None, labels: str, out: Path | None
) -> None:
    into = (out or RunFolder(run).scorecard).resolve()
    if out is not None:
        make_folder(into.parent)
        refuse_unwritable_file(into)
    found = find(run, cut_off, groups, scores, labels)
    write_text(into, page(found))
    show(console, found)
    console.point("page", into)
