"""`colonnade report --follow`: rewrites the page of a run while it continues."""

from __future__ import annotations

import time
from pathlib import Path

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.json_lines import read_lines
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.folder_lock import is_held
from colonnade.reports.console.screen import out as console

_PERIOD = 5.0  # seconds between two pages
_PATIENCE = 0.5  # seconds between polls before a run begins
_GONE = 90.0  # seconds after which a killed or failed member is not restarted


def follow(folder: Path, out: Path | None) -> None:
    """Writes the page every few seconds until the run completes, or has had no process for a while.

    The run need not have begun. Modules that make pages are imported only when there is something to show: until then
    the members need the machine.
    """
    console.print(f"waits for a run in {folder}", markup=False, soft_wrap=True)
    watched = _Watched(folder)
    while not watched.has_begun():
        if watched.gone():
            raise EnvironmentFault(f"nobody has begun a run in {folder}", hint="start its server, then this again")
        time.sleep(_PATIENCE)
    from colonnade.cli.read.report import report  # noqa: PLC0415

    while not (watched.completed() or watched.gone()):
        if watched.has_changed():
            report([folder], out, again=_PERIOD)
        time.sleep(_PERIOD)
    report([folder], out)


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
