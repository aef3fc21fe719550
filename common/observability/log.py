"""Events as records of the standard `logging`, under the logger `colonnade`.

A program that uses Colonnade as a library adds the handlers: without one, nothing is printed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from colonnade.common.errors import ConfigError, nearest
from colonnade.common.escaped import escaped
from colonnade.common.run.rate_limit import Event

VARIABLE = "COLONNADE_LOG"
"""Environment variable with the level that a member's process writes to its standard error."""

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
_LONGEST = 500  # characters of a value
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
