"""Reloads a party's prediction table while the party runs: completely, or the old one stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.errors import ColonnadeError


class TableReload:
    def __init__(
        self,
        name: str,
        federation: FederationConfig,
        read: Callable[[], Features],
        kept: EncoderFile,
        report: Callable[..., Any],
        now: Features,
    ) -> None:
        self._name, self._federation, self._read, self._kept = name, federation, read, kept
        self._report, self._now, self._next = report, now, now
        self._ready, self._again = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    def request(self) -> None:
        """Begins to read the table; a request during a read causes one more read."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._work())

    async def due(self, idle: asyncio.Event) -> None:
        """Waits until there is a new table and the party answers no request."""
        while not (self._ready.is_set() and idle.is_set()):
            await self._ready.wait()
            await idle.wait()

    def take(self) -> Features:
        self._ready.clear()
        self._now = self._next
        return self._now

    async def _work(self) -> None:
        while self._again:
            self._again = False
            try:
                found = await asyncio.to_thread(self._checked)
            except (ColonnadeError, OSError) as wrong:
                said = f"its table was not read again, and the one before stays: {wrong}"
                hint = getattr(wrong, "hint", "")
                self._report("warning", party=self._name, reason=f"{said}; {hint}" if hint else said)
                continue
            rows = len(found.values)
            for doubt in found.doubts:
                self._report("warning", party=self._name, reason=str(doubt))
            same = found.fingerprint == self._next.fingerprint
            self._report("reloaded", party=self._name, rows=rows, same=same, said=_words(rows, same))
            if not same:
                self._next = found
                self._ready.set()

    def _checked(self) -> Features:
        found = self._read()
        RowKeys.of(found.ids, self._federation.keys, self._name)
        self._kept.read().apply(found)
        return found


def _words(rows: int, same: bool) -> str:
    if same:
        return f"its table was read again: the same {rows} rows"
    return f"its table was read again: {rows} rows, of which all values are used from now on"
