"""What happens in a run, as events: one JSON object a line, and whoever listens."""

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
from colonnade.common.runtime.json_lines import open_to_append
from colonnade.common.runtime.rate_limit import Digest, Event, Listener

__all__ = ["Event", "Listener", "Telemetry", "without_nan"]

_LONGEST = 500  # characters of why somebody was refused


class Telemetry:
    """Writes events to a file as they happen, and passes them on.

    What others can cause is written at a bounded rate (common/runtime/rate_limit.py), and passed on as it is: who
    prints it bounds it again.

    Args:
        path: the run's events.jsonl; None writes nothing.
        listeners: called with every event.
        clock: seconds since 1970, or since the beginning on the virtual clock.
    """

    def __init__(self, path: Path | None = None, *listeners: Listener, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock
        self._file: TextIO | None = None
        self._listeners = listeners
        self._digest = Digest(self._keep, clock)
        self._closed = False

    def event(self, kind: str, **fields: Any) -> Event:
        """Records an event. `time` is seconds since 1970. After `close`, only listeners hear of it."""
        return self.pass_on({"kind": kind, "time": round(self._clock(), 6), **fields})

    def pass_on(self, event: Event) -> Event:
        """Records an event of another's making."""
        self._digest(event)
        for listener in self._listeners:
            listener(event)
        return event

    def _keep(self, event: Event) -> None:
        if self._path is not None and not self._closed:
            self._write(self._path, json.dumps(without_nan(event)) + "\n")

    def _write(self, path: Path, line: str) -> None:
        try:
            self._file = self._file or open_to_append(path)
            self._file.write(line)
        except OSError as failed:
            self._closed = True  # what follows, the end of the run among it, is still told to the listeners
            raise EnvironmentFault(
                f"{path} cannot be written: {failed.strerror}", hint="make room on the disk, then resume"
            ) from failed

    def refused(self, party: str, reason: str, address: str = "") -> None:
        """Records that someone was turned away, and why; `address` is where a stranger came from, if that is known."""
        whence = {"address": address} if address else {}
        self.event("refused", party=escaped(party, 80), reason=escaped(reason, _LONGEST), **whence)

    def close(self) -> None:
        """Writes the number of what was held back, and closes the file."""
        with contextlib.suppress(EnvironmentFault):
            self._digest.settle()
        self._closed = True
        if self._file is not None:
            with contextlib.suppress(OSError):  # a line that could not be written was an error already
                self._file.close()


def advances(event: Event) -> bool:
    """Whether a start of the server has added something to its run: a round, or its end."""
    return event["kind"] == "round" or (event["kind"], event.get("status")) == ("end", "completed")


def without_nan(value: Any) -> Any:
    """The same, with null for numbers that JSON does not know: the loss of a run that diverged."""
    if isinstance(value, dict):
        return {key: without_nan(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(below) for below in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
