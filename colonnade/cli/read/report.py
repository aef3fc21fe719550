"""`colonnade report`: the page of a run, or one that compares several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.reports.console.screen import out as console
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.page import write_page


def report(folders: Sequence[Path], out: Path | None, *, again: float = 0) -> None:
    """Writes the page and prints its path. Runs need not have ended.

    Args:
        out: default: report.html in the run's folder, or comparison.html in that of the first of several.
        again: seconds after which a browser reloads the page, in which case nothing is printed; 0 for never.
    """
    runs = [read_run(folder) for folder in folders]
    page = write_page(runs, out, again)
    if again:
        return
    for run in runs:
        console.print(headline(run), markup=False, soft_wrap=True)
    console.print(f"page: {page}", markup=False, soft_wrap=True)
