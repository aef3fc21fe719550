"""Session numbers, which increase even across restarts of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from colonnade.common.run.durable import write_kept
from colonnade.common.run.json_text import whole
from colonnade.common.run.run_folder import RunFolder

_MOST = (1 << 32) - 2  # one less than the wire's largest, so that the next still fits


@dataclass(frozen=True)
class SessionNumbers:
    """Source of session numbers. Parties refuse a session whose number is not larger than the previous one.

    Numbers are seconds since 1970 (`clock`), so they increase even if the file is lost or the folder is an older copy.
    The file protects against a clock that goes back. Without a folder, in a simulation, they count from 1.
    """

    folder: Path | None = None
    clock: Callable[[], float] = time.time

    def after(self, last: int) -> int:
        """A number larger than `last` and all earlier ones; it is on disk when this returns."""
        if self.folder is None:
            return last + 1
        number = max(last + 1, int(self.clock()))
        path = RunFolder(self.folder).session
        number = max(number, kept(path) + 1)
        write_kept(path, str(number).encode())
        return number


def kept(path: Path) -> int:
    try:
        return whole(int(path.read_text(encoding="utf-8")), _MOST)
    except (OSError, ValueError):
        return 0  # rely on the clock
