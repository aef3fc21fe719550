"""Events of a run: written as one JSON object per line, passed to listeners, and to the standard `logging`.

A program that uses Colonnade as a library adds handlers to the logger `colonnade`: without one, nothing is printed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

from colonnade.common.errors import ConfigError, EnvironmentFault, nearest
from colonnade.common.run.json_text import open_to_append
from colonnade.common.run.rate_limit import Digest, Event, Listener
from colonnade.common.text import escaped

VARIABLE = "COLONNADE_LOG"  # environment variable with the level that a member's process writes to its standard error

LEVELS: Mapping[str, int] = {
    **dict.fromkeys(
        ("round", "skipped", "pace", "checkpoint", "partial_sum", "preparing", "aligning", "capture"), logging.DEBUG
    ),
    **dict.fromkeys(
        ("begin", "privacy", "evaluation", "join", "listening", "observed", "rejoin", "resume", "revocations",
         "aligned", "stopped", "decision", "end", "batch", "reloaded"),
        logging.INFO,
    ),
    **dict.fromkeys(
        ("missing", "late", "refused", "warning", "leave", "rollback", "checkpoint_failed", "abandoned", "server_away",
         "back_off"),
        logging.WARNING,
    ),
    **dict.fromkeys(("failed", "diverged", "finding"), logging.ERROR),
}  # fmt: skip
"""Level by kind of event; DEBUG for others. An `end` of a run that is not completed has the level of its status."""

_ENDS: Mapping[str, int] = {"interrupted": logging.WARNING, "failed": logging.ERROR}
_FORM = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_WORDS = ("debug", "info", "warning", "error")

_ROOT = logging.getLogger("colonnade")
_ROOT.addHandler(logging.NullHandler())  # else Python prints warnings that no handler takes


class EventLog:
    """Passes events to the logger `colonnade.NAME`: `server`, `party.NAME` or `simulation`.

    The record's text has the event's plain values, without control characters; its attribute `event` is all of it.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"colonnade.{name}")

    def __call__(self, event: Event) -> None:
        level = _level(event)
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", _text(event), extra={"event": event})


def write_to_stderr(word: str) -> None:
    """Writes records of a level and above to standard error. Raises ConfigError for an unknown level."""
    if word.lower() not in _WORDS:
        said = f"{VARIABLE} = {escaped(word, 80)!r}: expected a level of logging{nearest(word.lower(), _WORDS)}"
        raise ConfigError(said, hint=f"one of {', '.join(_WORDS)}; or leave it out")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(_FORM))
    _ROOT.addHandler(handler)
    _ROOT.setLevel(word.upper())


def _level(event: Event) -> int:
    kind = event["kind"]
    if kind == "end":
        return _ENDS.get(str(event.get("status")), logging.INFO)
    return LEVELS.get(kind, logging.DEBUG)


def _text(event: Event) -> str:
    plain = ((key, value) for key, value in event.items() if key not in ("kind", "time"))
    words = [f"{key}={_shown(value)}" for key, value in plain if isinstance(value, str | int | float)]
    return " ".join([event["kind"], *words])


def _shown(value: str | float) -> str:
    if isinstance(value, str):
        return repr(escaped(value, _LONGEST)) if " " in value or not value else escaped(value, _LONGEST)
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["Event", "Listener", "Telemetry", "without_nan"]

_LONGEST = 500  # maximum characters of a refusal's reason


class Telemetry:
    """Writes events to a file and to a logger as they occur, and passes them on.

    Events that others can cause are written at a bounded rate (common/run/rate_limit.py) and passed on unbounded: a
    listener that prints them bounds them again.

    Args:
        path: the run's events.jsonl; None writes nothing.
        clock: seconds since 1970, or since the beginning on the virtual clock.
        log: name of a logger below `colonnade`; "" writes to none.
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
