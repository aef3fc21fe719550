"""The command line in a terminal of its own, as wide as a test wants."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from pathlib import Path

from tests.support import warm

_CONTROL = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")


def in_terminal(columns: int, cwd: Path, *words: object, **environment: str) -> tuple[int, str]:
    """Runs `colonnade` with these words. Returns its exit code and everything that it wrote, controls included."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = warm.start(
        *words,
        cwd=cwd,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**kept, "TERM": "xterm-256color", **environment},
        start_new_session=True,
    )
    os.close(theirs)
    said = bytearray()
    while chunk := _read(ours):
        said += chunk
    os.close(ours)
    return process.wait(), said.decode(errors="replace")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # nobody has it open any more
        return b""


def lines_of(said: str) -> list[str]:
    """Every line as it was drawn, also those that were drawn over; without controls."""
    return [line for line in re.split(r"[\r\n]+", _CONTROL.sub("", said)) if line.strip()]
