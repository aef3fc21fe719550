"""The page of the current state of a run's folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from colonnade.common.errors import InputError
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.dashboard.script import LIVE
from colonnade.reports.html.frame import frame
from colonnade.reports.html.markup import tag
from colonnade.reports.html.script import SCRIPT
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import html

PERIOD = 2.0  # seconds between two pages, and between a browser's requests
_SHARE = 0.1  # share of the time for making pages


class Current:
    """Makes pages on request, and reuses a page for a while. `clock` counts seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._page, self._next, self._over = b"", 0.0, False

    def end(self) -> None:
        """Fixes the next page as the last one."""
        self._over, self._next = True, 0.0

    def page(self) -> bytes:
        """Returns the newest page, which tells the browser to reload until the run has ended. Not thread-safe."""
        begun = self._clock()
        if begun >= self._next:
            over = self._over
            self._page = self._make(over).encode()
            spent = self._clock() - begun
            self._next = begun + max(PERIOD, spent / _SHARE) if not over else float("inf")
            if self._over and not over:  # it ended meanwhile
                self._next = 0.0
        return self._page

    def _make(self, over: bool) -> str:
        try:
            run = read_run(self._folder)
        except InputError as nothing:
            said = "The run has ended before it began." if over else "The run has not begun: its members are starting."
            said = str(nothing) if RunFolder(self._folder).summary.exists() else said
            return frame(self._folder.name, [tag("p", said, id="opening")], SCRIPT + LIVE, _again(over), live=True)
        over = over or run.summary["status"] != "unfinished"
        return html([run], None, _again(over), live=LIVE)


def _again(over: bool) -> float:
    return 0.0 if over else PERIOD
