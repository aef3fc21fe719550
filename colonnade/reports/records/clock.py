"""The seconds of a run from its first event, without the time between two starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from colonnade.common.observability.telemetry import Event


class Clock:
    """Converts times of events to seconds of the run.

    The clock stops between the last event of one start and the next `listening` event, so that pauses before a
    resumption do not count.

    Args:
        events: of the run, in file order.
        virtual: times come from a simulation, which begins at 0.

    Attributes:
        starts: number of starts of the server.
        paused: total seconds between the starts.
    """

    def __init__(self, events: Sequence[Event], *, virtual: bool = False) -> None:
        self._first: float = events[0]["time"] if events and not virtual else 0.0
        self._again: list[float] = []  # times at which the clock resumes
        self._lost = [0.0]  # paused seconds before each of these, with the beginning
        last: Event | None = None  # last event within a start: a warning may precede `listening`
        for event in events:
            if event["kind"] == "listening" and last is not None:
                self._again.append(event["time"])
                self._lost.append(self._lost[-1] + max(0.0, event["time"] - last["time"]))
            last = last if event["kind"] == "warning" else event
        self.starts, self.paused = len(self._lost), self._lost[-1]
        self.end = self.seconds(events[-1]["time"]) if events else 0.0

    def seconds(self, time: float) -> float:
        return max(0.0, time - self._first - self._lost[bisect_right(self._again, time)])
