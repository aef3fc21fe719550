"""`colonnade report`: the page of a run, perhaps rewritten while it continues, or one that compares several runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.common.run.activity import activity
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.launcher.folder_lock import is_held
from colonnade.reports.console.outputs import output_file, write_text
from colonnade.reports.console.screen import out as console
from colonnade.reports.records.run import is_party, read_run
from colonnade.reports.run_page.about import headline
from colonnade.reports.run_page.page import write_page

_PERIOD = 5.0  # seconds between two pages
_PATIENCE = 0.5  # seconds between polls before a run begins
_GONE = 90.0  # seconds after which a killed or failed member is not restarted


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="the folders of runs; or one party's own", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option("--out", help="the page's file", show_default=False)] = None,
    again: Annotated[
        bool, typer.Option("--follow", help="rewrite it every 5 s until the run ends; it need not have begun")
    ] = False,
) -> None:
    if again and len(runs) != 1:
        raise InputError("--follow: expected one run", hint="compare several once they have ended")
    if again and is_party(runs[0]):
        raise InputError(
            f"--follow: {runs[0]} is a party's own folder", hint="follow the server's, or leave --follow out"
        )
    if again:
        follow(runs[0], out)
    else:
        _write(runs, out)


def _write(folders: Sequence[Path], out: Path | None, *, again: float = 0) -> None:
    """Writes the page and prints its path. Runs need not have ended.

    Args:
        out: default: report.html in the run's folder, or comparison.html in that of the first of several.
        again: seconds after which a browser reloads the page, in which case nothing is printed; 0 for never.
    """
    if len(folders) == 1 and not again and is_party(folders[0]):
        _write_own(folders[0], out)
        return
    with activity("writing the page"):
        runs = [read_run(folder) for folder in folders]
        page = write_page(runs, out, again)
    if again:
        return
    for run in runs:
        console.say(headline(run))
    console.point("page", page)


def _write_own(folder: Path, out: Path | None) -> None:
    from colonnade.reports.run_page.party_page import party_page  # noqa: PLC0415  # torch

    page = output_file(out, PartyFolder(folder).report)
    with activity("writing the page"):
        write_text(page, party_page(folder))
    console.point("page, for this party alone", page)


def follow(folder: Path, out: Path | None) -> None:
    """Writes the page every few seconds until the run completes, or has had no process for a while. It need not have
    begun.
    """
    console.say(f"waits for a run in {folder}")
    watched = _Watched(folder)
    while not watched.has_begun():
        if watched.gone():
            raise EnvironmentFault(f"no run has begun in {folder}", hint="start its server, then this again")
        time.sleep(_PATIENCE)
    while not (watched.completed() or watched.gone()):
        if watched.has_changed():
            _write([folder], out, again=_PERIOD)
        time.sleep(_PERIOD)
    _write([folder], out)


class _Watched:
    """Observes the folder of a server that works, has worked or will work there."""

    def __init__(self, folder: Path) -> None:
        self._folder = RunFolder(folder)
        self._size, self._alive = -1, time.monotonic()

    def has_begun(self) -> bool:
        return any(event["kind"] in ("round", "end") for event in read_lines(self._folder.events))

    def has_changed(self) -> bool:
        """True if the events have grown since the last call."""
        before, self._size = self._size, self._folder.events.stat().st_size
        return self._size != before

    def completed(self) -> bool:
        """True if the newest start has completed and left its summary."""
        last = [event for event in read_lines(self._folder.events) if event["kind"] in ("listening", "end")][-1:]
        return [event.get("status") for event in last] == ["completed"] and self._folder.summary.exists()

    def gone(self) -> bool:
        """True if no process has worked here for longer than a restart takes."""
        if is_held(self._folder.path):
            self._alive = time.monotonic()
        return time.monotonic() - self._alive > _GONE
