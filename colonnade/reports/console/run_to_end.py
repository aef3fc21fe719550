"""Runs the body of a process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any

import uvloop

from colonnade.reports.console.screen import INTERRUPTED, err


def run_to_end(main: Coroutine[Any, Any, None]) -> None:
    """Runs a process's body; SIGINT and SIGTERM both cancel it, so that it can end properly."""

    async def cancellable() -> None:
        task = asyncio.current_task()
        assert task is not None  # we are in one
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        await main

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(cancellable())
    except asyncio.CancelledError:
        err.print("interrupted", style="yellow")
        raise SystemExit(INTERRUPTED) from None
