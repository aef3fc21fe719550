"""Log of a library that serves strangers: malformed requests are dropped, the rest is rate-limited."""

from __future__ import annotations

import logging

from colonnade.common.escaped import escaped_lines
from colonnade.common.runtime.rate_limit import Digest

_LONGEST = 4000  # characters of a record


class Quiet(logging.Handler):
    """Drops records of callers' errors (`theirs`), and writes the rest to standard error at a bounded rate."""

    def __init__(self, theirs: type[Exception]) -> None:
        super().__init__(logging.WARNING)
        self._theirs, self._out = theirs, logging.StreamHandler()
        self._bounded = Digest(self._write)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], self._theirs):
            return
        text = escaped_lines(self.format(record))[:_LONGEST]
        self._bounded({"kind": "refused", "time": record.created, "party": "", "reason": text})

    def _write(self, said: dict[str, object]) -> None:
        self._out.emit(logging.makeLogRecord({"msg": "%s", "args": (said["reason"],)}))


def quiet(name: str, theirs: type[Exception]) -> logging.Logger:
    logger = logging.getLogger(f"colonnade.{name}")
    if not logger.handlers:
        logger.addHandler(Quiet(theirs))
        logger.propagate = False
    return logger
