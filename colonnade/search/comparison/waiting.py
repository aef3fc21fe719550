"""Progress line of a comparison, with the remaining time."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from colonnade.reports.console.screen import out
from colonnade.search.comparison.outcomes import ProtocolOutcome

_PERIOD = 10.0  # least seconds between two lines if the output is no terminal


class WaitingLine:
    """Counts runs, and estimates the remaining time.

    Args:
        runs: at most, by protocol.
        show: False for no line.
    """

    def __init__(self, runs: Mapping[str, int], *, show: bool) -> None:
        self._to_go, self._show = dict(runs), show
        self._made = self._kept = 0
        self._begun = self._said = time.monotonic()
        self._lock = threading.Lock()

    def ran(self, protocol: str, kept: bool) -> None:
        """Counts a run of a protocol, stored before or made now."""
        with self._lock:
            self._to_go[protocol] = max(self._to_go.get(protocol, 0) - 1, 0)
            self._kept += kept
            self._made += not kept
            self._tell()

    def ended(self, outcome: ProtocolOutcome, said: str) -> None:
        """Prints the result of a protocol, which makes no further runs."""
        with self._lock:
            self._to_go.pop(outcome.name, None)
        if self._show:
            style = "dim" if outcome.status == "ok" else "yellow"
            out.print(f"{outcome.name}: {said}", style=style, markup=False, soft_wrap=True)

    def begin(self, text: str) -> None:
        if self._show:
            out.print(text, style="dim", markup=False, soft_wrap=True)

    @property
    def to_go(self) -> int:
        """Maximum number of remaining runs."""
        return sum(self._to_go.values())

    @property
    def left(self) -> str:
        """Remaining time in words, estimated from the runs made so far."""
        if not self._made:
            return "time left unknown"
        seconds = (time.monotonic() - self._begun) / self._made * self.to_go
        return f"about {in_words(seconds)} left"

    def _tell(self) -> None:
        now = time.monotonic()
        if not self._show or now - self._said < _PERIOD:
            return
        self._said = now
        kept = f", {self._kept} kept before" if self._kept else ""
        out.print(f"{self._made} runs made{kept}, at most {self.to_go} to go, {self.left}", style="dim", markup=False)


def in_words(seconds: float) -> str:
    """A time in the unit that fits: `50 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
