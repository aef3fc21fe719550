"""Events of a run: written as one JSON object per line, and passed to listeners."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from colonnade.common.errors import EnvironmentFault
from colonnade.common.escaped import escaped
from colonnade.common.observability.log import EventLog
from colonnade.common.run.json_text import open_to_append
from colonnade.common.run.rate_limit import Digest, Event, Listener

__all__ = ["Event", "Listener", "Telemetry", "without_nan"]

_LONGEST = 500  # maximum characters of a refusal's reason


class Telemetry:
    """Writes events to a file and to a logger as they occur, and passes them on.

    Events that others can cause are written at a bounded rate (common/run/rate_limit.py) and passed on unbounded: a
    listener that prints them bounds them again.

    Args:
        path: the run's events.jsonl; None writes nothing.
        clock: seconds since 1970, or since the beginning on the virtual clock.
        log: name of a logger below `colonnade` (common/observability/log.py); "" writes to none.
    """

    def __init__(
        self,
        path: Path | None = None,
        *listeners: Listener,
        clock: Callable[[], float] = time.time,
        log: str = "",
    ) -> None:
        self._path, self._clock = path, clock
        self._log = EventLog(log) if log else None
        self._file: TextIO | None = None
        self._listeners = listeners
        self._digest = Digest(self._keep, clock)
        self._closed = False

    def add(self, listener: Listener) -> None:
        self._listeners = (*self._listeners, listener)

    def event(self, kind: str, **fields: Any) -> Event:
        """Records an event. `time` is seconds since 1970. After `close`, only listeners receive it."""
        return self.pass_on({"kind": kind, "time": round(self._clock(), 6), **fields})

    def pass_on(self, event: Event) -> Event:
        self._digest(event)
        for listener in self._listeners:
            listener(event)
        return event

    def _keep(self, event: Event) -> None:
        if self._log is not None:
            self._log(event)
        if self._path is not None and not self._closed:
            self._write(self._path, json.dumps(without_nan(event)) + "\n")

    def _write(self, path: Path, line: str) -> None:
        try:
            self._file = self._file or open_to_append(path)
            self._file.write(line)
        except OSError as failed:
            self._closed = True  # listeners still receive later events, such as the end of the run
            raise EnvironmentFault(
                f"{path} cannot be written: {failed.strerror}", hint="make room on the disk, then resume"
            ) from failed

    def refused(self, party: str, reason: str, address: str = "") -> None:
        """Records a refusal and its reason; `address` is a stranger's, if known."""
        whence = {"address": address} if address else {}
        self.event("refused", party=escaped(party, 80), reason=escaped(reason, _LONGEST), **whence)

    def close(self) -> None:
        """Writes the counts of suppressed events, and closes the file."""
        with contextlib.suppress(EnvironmentFault):
            self._digest.settle()
        self._closed = True
        if self._file is not None:
            with contextlib.suppress(OSError):  # a failed write was reported already
                self._file.close()


def advances(event: Event) -> bool:
    """True if a start of the server has advanced its run: by a round, or to its end."""
    return event["kind"] == "round" or (event["kind"], event.get("status")) == ("end", "completed")


def without_nan(value: Any) -> Any:
    """Replaces numbers that JSON cannot represent (the loss of a diverged run) by null."""
    if isinstance(value, dict):
        return {key: without_nan(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(below) for below in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
