"""The live region: current activities with the time left, below everything that is printed.

A terminal shows a line for the outermost and the innermost activity, and clears them at their end. A pipe, a file or a
terminal without cursor control gets a plain line of the outermost periodically, at growing intervals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import Self

from rich.console import Group
from rich.live import Live
from rich.text import Text

from colonnade.common.run.activity import Activity, under_way
from colonnade.common.text import escaped_lines
from colonnade.reports.console.screen import Screen, out

SOON = 0.4
"""Seconds after which a terminal shows an activity: shorter ones would flicker."""

_PERIOD = 0.125  # seconds between two pictures
_PLAIN = 5.0  # seconds before the first plain line, and at least between two
_RARER = 0.2  # of the time so far: what takes an hour needs no line every five seconds
_BAR, _LEAST_BAR, _MOST_BAR = "━", 10, 30  # characters
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LONGEST = 28  # characters of what is done
_ACCENT = "cyan"


class LiveRegion:
    """Draws the activities of this process until it is left.

    Args:
        console: everything else must be printed by it.
        ticking: whether a thread draws; otherwise only `draw` does.
    """

    def __init__(self, console: Screen, clock: Callable[[], float] = time.monotonic, *, ticking: bool = True) -> None:
        self._console, self._clock, self._ticking = console, clock, ticking
        self._moves = console.is_terminal and not console.is_dumb_terminal
        self._live: Live | None = None
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None
        self._next: dict[Activity, float] = {}  # when the next plain line is due

    def __enter__(self) -> Self:
        if self._ticking:
            self._ticker = threading.Thread(target=self._tick, daemon=True)
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()
        self._clear()

    def draw(self) -> None:
        """Shows current activities."""
        with self._console.drawing:
            if self._moves:
                self._move()
            else:
                self._print(self._clock())

    def _move(self) -> None:
        if self._live is None and not self._shown():
            return
        if self._live is None:
            self._live = Live(self, console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live.start()
        self._live.refresh()
        if not self._shown():
            self._clear()

    def _shown(self) -> list[Activity]:
        """The outermost and the innermost long activity."""
        long = [one for one in under_way() if self._clock() - one.begun >= SOON]
        return list(dict.fromkeys((long[0], long[-1]))) if long else []

    def __rich__(self) -> Group:
        """The current lines, redrawn below everything that is printed."""
        now, width = self._clock(), self._console.width
        return Group(*(moving_line(one, now, width, inner=bool(at)) for at, one in enumerate(self._shown())))

    def _print(self, now: float) -> None:
        outer = under_way()[:1]
        self._next = {one: self._next.get(one, one.begun + _PLAIN) for one in outer}
        for one in outer:
            if now >= self._next[one]:
                self._next[one] = now + max(_PLAIN, _RARER * (now - one.begun))
                self._console.print(Text(plain_line(one, now, self._console.width)), soft_wrap=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _tick(self) -> None:
        while not self._ended.wait(_PERIOD):
            self.draw()


_shown: set[Screen] = set()


def showing(wanted: bool) -> AbstractContextManager[None]:
    """Shows the activities on standard output until the block ends, if wanted."""
    return shown(out) if wanted else nullcontext()


@contextmanager
def shown(console: Screen) -> Iterator[None]:
    """Shows the activities on a console until the block ends; within another such block it changes nothing."""
    if console in _shown:
        yield
        return
    _shown.add(console)
    try:
        with LiveRegion(console):
            yield
    finally:
        _shown.remove(console)


def plain_line(one: Activity, now: float, width: int, *, over: bool = False) -> str:
    """An activity in a line that fits; parts that do not fit are left out, the last facts first.

    Args:
        over: True if it has ended, so that its line gives the time taken.
    """
    seconds = now - one.begun
    time_left = None if over else one.left(now)
    count = f"{one.done}/{one.total} {one.unit}".rstrip() if one.total else ""
    took = f"in {in_words(seconds)}" if over else in_words(seconds)
    timed = took if time_left is None else f"{in_words(time_left)} left"
    fields = [field for field in (count, timed, *one.facts) if field]
    what = cut(escaped_lines(one.what), _LONGEST if len(one.what) + 2 + sum(map(len, fields[:2])) > width else width)
    line = what
    for field in map(escaped_lines, fields):
        if Text(f"{line}  {field}").cell_len > width:
            break
        line = f"{line}  {field}"
    return cut(line, width)


def moving_line(one: Activity, now: float, width: int, *, inner: bool = False) -> Text:
    """`plain_line` with a spinner, and a bar if there is room. `inner`: within another activity."""
    spinner = _SPINNER[int(now / _PERIOD) % len(_SPINNER)]
    text = Text("  " if inner else f"{spinner} ", style=_ACCENT)
    said = plain_line(one, now, width - text.cell_len - 1)  # the last column stays free: some terminals wrap there
    what, gap, rest = said.partition("  ")
    room = min(width - text.cell_len - 1 - Text(said).cell_len - 2, _MOST_BAR)
    text.append(what, style="dim" if inner else "default")
    if one.total and room >= _LEAST_BAR:
        done = round(room * min(one.done / one.total, 1.0))
        text.append("  ").append(_BAR * done, style=_ACCENT).append(_BAR * (room - done), style="dim")
    return text.append(gap + rest, style="dim")


def cut(text: str, width: int) -> str:
    """A text of at most `width` characters, the last one `…` if it was cut."""
    whole = Text(text)
    whole.truncate(max(width, 1), overflow="ellipsis")
    return whole.plain


def in_words(seconds: float) -> str:
    """A time in the unit that fits: `50 s`, `12 min`, `3.4 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
