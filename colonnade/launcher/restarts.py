"""Restarts of members that were killed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from colonnade.common.config.members import LaunchConfig


class Restarts:
    def __init__(self, config: LaunchConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock = config, clock
        self._used: Counter[str] = Counter()
        self._at: dict[str, float] = {}

    def hopeful(self, name: str, code: int) -> bool:
        """True if a member that ended with this code will be restarted.

        Only a killed member (a negative code) is: a member that exits by itself would fail again.
        """
        return code < 0 and (name in self._at or self._used[name] < self._config.restarts)

    def noticed(self, name: str) -> bool:
        """Schedules the restart of a member; True the first time."""
        if name in self._at:
            return False
        self._at[name] = self._clock() + self._config.backoff * 2 ** self._used[name]
        self._used[name] += 1
        return True

    def due(self, name: str) -> bool:
        """True, once, when it is time to restart the member."""
        if self._clock() < self._at[name]:
            return False
        del self._at[name]
        return True
