"""Events of a run for its trackers, each delivered in its own thread: a slow or broken tracker delays no round."""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from colonnade.common.errors import ColonnadeError
from colonnade.common.run.files import write_durably, write_kept
from colonnade.common.run.rate_limit import Event
from colonnade.common.run.run_folder import MemberFolder, read_record
from colonnade.common.text import escaped
from colonnade.common.tracking.allowed import (
    COUNTED,
    epsilons,
    numbers,
    round_metrics,
    score_names,
    summary_record,
)
from colonnade.common.tracking.tracker import Parameter, Status, TrackedRun, Tracker, TrackerConfig
from colonnade.common.version import VERSION

Record = Callable[[Tracker], None]

MOST = 20_000  # maximum records that wait for a tracker; later ones are dropped and counted

PAUSES = (1.0, 60.0)  # seconds before the second attempt, and maximum between two; a pause doubles

_WORDS = 300  # characters of a tracker's error


class Delivery:
    """Passes records to a tracker in order. A record that fails is tried again after a pause.

    Args:
        place: key of the tracker's section, for warnings: server.trackers.0.
    """

    def __init__(
        self, place: str, config: TrackerConfig, run: TrackedRun, pauses: tuple[float, float] = PAUSES
    ) -> None:
        self._name, self._config, self._run, self._pauses = f"{place} ({config.name})", config, run, pauses
        self._records: deque[Record] = deque()
        self._changed = threading.Condition()
        self._unsent = self._dropped = 0  # delivered and not flushed; never accepted
        self._status: Status | None = None
        self._over = self._warned = False
        self._warnings: deque[tuple[str, str]] = deque()
        self._tracker: Tracker | None = None
        self._thread = threading.Thread(target=self._work, name=f"tracker {config.name}", daemon=True)
        self._thread.start()

    @property
    def takes_model(self) -> bool:
        """True if the tracker is to receive the member's part of the model."""
        return self._config.model

    def put(self, record: Record) -> None:
        """Adds a record without waiting; drops it where too many wait already."""
        with self._changed:
            if len(self._records) >= MOST:
                self._dropped += 1
                return
            self._records.append(record)
            self._changed.notify()

    def warnings(self) -> list[tuple[str, str]]:
        """Reasons and hints of warnings since the last call."""
        return [self._warnings.popleft() for _ in range(len(self._warnings))]

    def end(self, status: Status) -> None:
        """Ends the run at the tracker after all records, without waiting. Nothing may be put afterwards."""
        with self._changed:
            self._status = status
            self._changed.notify()

    def join(self, until: float) -> None:
        """Waits until a time of the monotonic clock, drops what is left, and warns of undelivered records."""
        self._thread.join(max(until - time.monotonic(), 0.0))
        with self._changed:
            lost = self._dropped + len(self._records) + self._unsent
            late = self._thread.is_alive() and not self._over
            self._over = True
            self._changed.notify()
        if lost or late:
            what = f"{lost} records were not delivered" if lost else "its run was not ended"
            self._warnings.append((f"{self._name}: {what}", "the run's own folder holds all results and events"))

    def _work(self) -> None:
        pause = self._pauses[0]
        while (step := self._next()) is not None:
            try:
                if self._tracker is None:
                    self._tracker = self._config.open(self._run)
                step(self._tracker)
                pause = self._pauses[0]
            except Exception as failed:  # noqa: BLE001  # the run goes on, whatever a tracker raises
                self._warn(failed)
                self._wait(pause)
                pause = min(2 * pause, self._pauses[1])

    def _next(self) -> Record | None:
        """The next call, which has no effect on the queue if it raises; None at the end."""
        with self._changed:
            while not self._over:
                if self._records:
                    return self._deliver
                if self._unsent:
                    return self._flush
                if self._status is not None:
                    return partial(self._end, status=self._status)
                self._changed.wait()
            return None

    def _deliver(self, tracker: Tracker) -> None:
        self._records[0](tracker)
        with self._changed:
            self._records.popleft()
            self._unsent += 1

    def _flush(self, tracker: Tracker) -> None:
        tracker.flush()
        with self._changed:
            self._unsent = 0

    def _end(self, tracker: Tracker, status: Status) -> None:
        tracker.end(status)
        with self._changed:
            self._over = True

    def _wait(self, pause: float) -> None:
        """Pauses. The end of the run ends a long pause, once: it is the last chance for another attempt."""
        with self._changed:
            if self._status is None:
                self._changed.wait_for(lambda: self._over or self._status is not None, pause)
            else:
                self._changed.wait_for(lambda: self._over, min(pause, self._pauses[0]))

    def _warn(self, failed: Exception) -> None:
        if self._warned:
            return
        self._warned = True
        said = str(failed) if isinstance(failed, ColonnadeError) else f"{type(failed).__name__}: {failed}"
        reason = f"{self._name} takes no records: {escaped(' '.join(said.split()), _WORDS)}"
        hint = getattr(failed, "hint", "") or "see that its server or its file can be reached"
        self._warnings.append((f"{reason}; the run goes on, and they are sent later", hint))


PARTY_METRICS = frozenset({
    "bytes_sent", "bytes_received", "epsilon", "releases",
    "seconds_computing", "seconds_waiting", "seconds_checkpoint",
})  # fmt: skip

Give = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Tracked:
    """The member whose run is tracked.

    Args:
        place: key of its trackers, for warnings: server.trackers.
        run: number, round and what trackers have kept are filled in.
        parameters: for trackers, as common/tracking/allowed.py lists them.
        number: finds the run's random number once the run has begun; "" if it has none.
    """

    place: str
    run: TrackedRun
    parameters: Mapping[str, Parameter]
    parties: Collection[str]
    number: Callable[[], str] = lambda: ""


class Tracking:
    """Trackers of a member: a listener of its events, which never waits before `finish`.

    A run is opened at the trackers with the first `begin` event, so that a start that fails before leaves nothing.

    Attributes:
        patience: seconds that the end of a run waits for all its trackers.
        report: receives this class's `warning` events; the telemetry's `pass_on`.
    """

    patience: ClassVar[float] = 5.0
    pauses: ClassVar[tuple[float, float]] = PAUSES

    def __init__(self, trackers: tuple[TrackerConfig, ...], tracked: Tracked) -> None:
        self._trackers, self._tracked = trackers, tracked
        self.report: Give = lambda _event: None
        self._deliveries: list[Delivery] = []
        self._counts: Counter[str] = Counter()
        self._names = score_names(tracked.parties, [entry.name for entry in entry_points(group="colonnade.metrics")])
        self._sent: set[str] = set()
        self._time = 0.0
        self._ended = not trackers

    def __call__(self, event: Event) -> None:
        """Takes an event of the server; of a party only `begin` has an effect."""
        if self._ended:
            return
        kind, self._time = event["kind"], event["time"]
        if kind in ("begin", "round") and not self._deliveries:
            self._begin(int(event["round"]) - (kind == "round"))
        if kind == "round":
            self.metrics(event["round"], {**round_metrics(event), **self._counts})
        elif kind == "evaluation":
            self.metrics(event["round"], numbers(event, self._names))
        elif kind in COUNTED:
            self._counts[COUNTED[kind]] += 1
        self._warn()

    def party(self, round: int, values: Mapping[str, Any]) -> None:
        """Takes numbers of a party's own record."""
        self.metrics(round, numbers(values, PARTY_METRICS))
        self._warn()

    def metrics(self, round: int, values: Mapping[str, float]) -> None:
        """Takes metrics, which the caller has chosen by common/tracking/allowed.py."""
        taken = dict(values)
        if taken:
            self._sent |= taken.keys()
            for delivery in self._deliveries:
                delivery.put(lambda tracker: tracker.metrics(round, taken))

    def finish(
        self,
        status: Status,
        round: int,
        summary: Mapping[str, Any] | None = None,
        model: Callable[[], bytes | None] = lambda: None,
    ) -> None:
        """Sends the last record, and waits for its delivery for some seconds. Has no effect the second time.

        Args:
            summary: content of summary.json; its allowed part is sent.
            model: makes the member's part of the model, a safetensors file; None if it has none. Called only if a
                tracker is to receive it.
        """
        if self._ended:
            return
        self._ended = True
        with tempfile.TemporaryDirectory(prefix="colonnade-") as scratch:
            if summary is not None:
                self.metrics(round, self._last(summary))
                record = summary_record(summary, status, self._tracked.parties, self._names)
                self._file(
                    Path(scratch) / "summary.json", (json.dumps(record, indent=2) + "\n").encode(), self._deliveries
                )
            wanted = [one for one in self._deliveries if one.takes_model]
            if wanted and status == "completed" and (content := model()) is not None:
                self._file(Path(scratch) / "model.safetensors", content, wanted)
            for delivery in self._deliveries:
                delivery.end(status)
            until = time.monotonic() + self.patience
            for delivery in self._deliveries:
                delivery.join(until)
        self._warn()

    def _last(self, summary: Mapping[str, Any]) -> dict[str, float]:
        """Metrics that only a summary has: slow ones of the last evaluation, and epsilon."""
        scores = numbers(summary.get("metrics") or {}, self._names - self._sent)
        return {**scores, **epsilons(summary, self._tracked.parties)}

    def _file(self, path: Path, content: bytes, deliveries: list[Delivery]) -> None:
        try:
            write_durably(path, content)
        except OSError as failed:
            self._report(f"{self._tracked.place}: {path.name} is not sent: {failed.strerror}", "make room on the disk")
            return
        for delivery in deliveries:
            delivery.put(lambda tracker: tracker.artefact(path))

    def _begin(self, round: int) -> None:
        kept, number = _Kept(self._tracked.run.folder), self._tracked.number() or secrets.token_hex(8)
        parameters = {**self._tracked.parameters, "colonnade": VERSION, "run": number}
        for index, config in enumerate(self._trackers):
            name = config.identity()
            run = replace(
                self._tracked.run, number=number, round=round, kept=kept.get(name), keep=partial(kept.keep, name)
            )
            delivery = Delivery(f"{self._tracked.place}.{index}", config, run, self.pauses)
            delivery.put(lambda tracker: tracker.begin(parameters))
            self._deliveries.append(delivery)

    def _warn(self) -> None:
        for delivery in self._deliveries:
            for reason, hint in delivery.warnings():
                self._report(reason, hint)

    def _report(self, reason: str, hint: str) -> None:
        more = {"hint": hint} if hint else {}
        self.report(
            {"kind": "warning", "time": self._time, "party": self._tracked.run.member, "reason": reason, **more}
        )


class _Kept:
    """Values that trackers keep for a resumed run, in a file of the member's folder. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._path, self._lock = MemberFolder(folder).trackers, threading.Lock()
        self._words = {
            name: {key: word for key, word in words.items() if isinstance(word, str)}
            for name, words in (read_record(self._path) or {}).items()
            if isinstance(words, dict)
        }

    def get(self, name: str) -> dict[str, str]:
        return dict(self._words.get(name, {}))

    def keep(self, name: str, words: Mapping[str, str]) -> None:
        with self._lock:
            self._words[name] = dict(words)
            write_kept(self._path, (json.dumps(self._words, indent=2) + "\n").encode())
