"""The seconds of a run from its first event, without the time between two starts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.common.observability.telemetry import Event
from colonnade.common.run.json_text import is_number


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


EVALUATED = tuple(
    f"{part}_{name}" for name in ("auc", "balanced_accuracy", "accuracy", "rmse", "loss") for part in ("val", "test")
)


@dataclass(frozen=True)
class Measured:
    """A value with its time.

    Args:
        seconds: on the run's clock.
        bytes: on the wire both ways at the end of the round; 0 if not counted.
    """

    round: int
    seconds: float
    bytes: int
    value: float


class Trace:
    """The values of every round and evaluation that counts.

    If a run went back to a checkpoint, the later rounds count as they were repeated.

    Attributes:
        series: by name: train_loss, and for val and test accuracy or rmse, and loss; in order.
        ends: second at which a round ended, by round.
        slowest: party that responded last, by round.
        lags: seconds from the first response to the last, by round.
        lost: values that were not finite, as in a diverged run.
    """

    def __init__(self, events: Sequence[Event], clock: Clock) -> None:
        self.series: dict[str, list[Measured]] = {name: [] for name in ("train_loss", *EVALUATED)}
        self.ends: dict[int, float] = {}
        self.slowest: dict[int, str] = {}
        self.lags: dict[int, float] = {}
        self.lost = 0
        self._bytes = 0
        for event in events:
            now = clock.seconds(event["time"])
            match event["kind"]:
                case "begin" | "resume":
                    self._go_back(event.get("round", 0))
                case "round":
                    self._round(event, now)
                case "evaluation":
                    for name in EVALUATED:
                        self._add(name, event, name, now)

    def _round(self, event: Event, now: float) -> None:
        self._bytes = _whole(event.get("bytes_up")) + _whole(event.get("bytes_down"))
        self.ends[event["round"]] = now
        slowest = event.get("slowest")
        if isinstance(slowest, dict) and slowest.get("party"):
            self.slowest[event["round"]] = str(slowest["party"])
            self.lags[event["round"]] = _seconds(slowest.get("seconds"))
        self._add("train_loss", event, "loss", now)

    def _add(self, name: str, event: Event, key: str, now: float) -> None:
        if key not in event:
            return
        value = event[key]
        if is_number(value):
            self.series[name].append(Measured(event.get("round", 0), now, self._bytes, float(value)))
        else:
            self.lost += 1

    def _go_back(self, round: int) -> None:
        for name, values in self.series.items():
            self.series[name] = [measured for measured in values if measured.round <= round]
        self.ends = {number: end for number, end in self.ends.items() if number <= round}
        self.slowest = {number: party for number, party in self.slowest.items() if number <= round}
        self.lags = {number: lag for number, lag in self.lags.items() if number <= round}


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _seconds(value: object) -> float:
    return float(value) if is_number(value) else 0.0
