"""What happens in a run, as events: one JSON object a line, and whoever listens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Listener = Callable[[Event], None]


class Telemetry:
    """Writes events to a file as they happen, and passes them on.

    Args:
        path: the run's events.jsonl; None writes nothing.
        listeners: called with every event.
    """

    def __init__(self, path: Path | None = None, *listeners: Listener) -> None:
        self._file = None if path is None else path.open("a", buffering=1)
        self._listeners = listeners

    def event(self, kind: str, **fields: Any) -> Event:
        """Records an event. `time` is seconds since 1970. After `close`, only listeners hear of it."""
        event = {"kind": kind, "time": round(time.time(), 6), **fields}
        if self._file is not None and not self._file.closed:
            self._file.write(json.dumps(event) + "\n")
        for listener in self._listeners:
            listener(event)
        return event

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
