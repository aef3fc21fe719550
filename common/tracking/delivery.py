"""Delivery to one tracker, in its own thread: a tracker that is away, slow or broken delays no round."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from colonnade.common.errors import ColonnadeError
from colonnade.common.escaped import escaped
from colonnade.common.tracking.tracker import Status, TrackedRun, Tracker, TrackerConfig

Record = Callable[[Tracker], None]

MOST = 20_000
"""Maximum records that wait for a tracker; later ones are dropped and counted."""

PAUSES = (1.0, 60.0)
"""Seconds before the second attempt, and maximum between two; a pause doubles."""

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
