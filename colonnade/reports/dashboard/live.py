"""The dashboard of a run, in a separate thread."""

from __future__ import annotations

import time
from pathlib import Path

from colonnade.common.observability.loopback import is_loopback
from colonnade.common.observability.ports import split_address
from colonnade.common.run.loop_thread import LoopThread
from colonnade.reports.console.screen import out as console
from colonnade.reports.dashboard.address import read_address
from colonnade.reports.dashboard.current import PERIOD, Current
from colonnade.reports.dashboard.site import Site

_FAREWELL = PERIOD + 1.0  # seconds within which a following browser requests again


class Dashboard:
    """Serves a run's page from construction until it is closed.

    Args:
        given: HOST:PORT or a port on loopback, as on the command line.
    """

    def __init__(self, folder: Path, given: str) -> None:
        address = read_address(given)
        self._current = Current(folder)
        self._loop = LoopThread("dashboard")
        self._site = Site(self._current, address)
        try:
            self.url = f"http://{self._loop.run(self._site.start())}/"
        except BaseException:
            self._loop.close()
            raise
        console.print(f"dashboard: {self.url}", markup=False, soft_wrap=True)
        if not is_loopback(split_address(address)[0]):
            said = "whoever reaches this address reads the page, and so does who listens on the way: it has no TLS"
            console.print(f"  {said}", style="yellow", markup=False, soft_wrap=True)

    def close(self) -> None:
        """Serves the last state until followers have requested it, then stops."""
        self._current.end()
        try:
            if self._site.followed:
                time.sleep(_FAREWELL)
        finally:
            self._loop.run(self._site.stop())
            self._loop.close()
