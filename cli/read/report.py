"""`colonnade report`: what came of a run, as a page; of several runs, one that compares them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from colonnade.common.errors import InputError
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.page import html


def report(folders: Sequence[Path], out: Path | None, *, again: float = 0) -> None:
    """Writes the page, and says where it is.

    Args:
        folders: of the runs, whether they have ended or not.
        out: the page's file; report.html in the run's folder, or comparison.html in that of the first of several.
        again: seconds after which a browser loads the page anew, since another will be there; 0 for never. Of such a
            page nothing is said.

    Raises:
        InputError: a folder holds no run, or is named twice.
        EnvironmentFault: nothing can be written there.
    """
    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1]:
        raise InputError(f"{twice[0]} is named twice", hint="a run is compared with others")
    runs = [read_run(folder) for folder in folders]
    first = RunFolder(folders[0])
    page = (out or (first.report if len(runs) == 1 else first.comparison)).resolve()
    if page.is_dir():
        raise InputError(f"--out {out}: expected a file, this is a folder", hint=f"{RunFolder(page).report}")
    make_folder(page.parent)
    write_text(page, html(runs, page.parent, again))
    if again:
        return
    for run in runs:
        console.print(headline(run), markup=False, soft_wrap=True)
    console.print(f"page: {page}", markup=False, soft_wrap=True)
