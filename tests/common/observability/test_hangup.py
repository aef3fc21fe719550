"""SIGHUP asks for files to be read again, and ends a process whose terminal was closed."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.run import event_loop
from colonnade.common.run.event_loop import on_hangup


@pytest.mark.parametrize(
    ("terminal", "heard"), [([False, False], ["call"]), ([True, True], ["call"]), ([True, False], ["term"])]
)
def test_a_signal_is_a_request_unless_the_terminal_has_gone(
    terminal: list[bool], heard: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there: Iterator[bool] = iter(terminal)
    monkeypatch.setattr(event_loop, "has_terminal", lambda: next(there))

    async def main() -> list[str]:
        came, found = asyncio.Event(), list[str]()

        def note(what: str) -> None:
            found.append(what)
            came.set()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, note, "term")
        on_hangup(lambda: note("call"))
        os.kill(os.getpid(), signal.SIGHUP)
        await came.wait()
        return found

    assert asyncio.run(main()) == heard


def test_nothing_is_done_where_signals_do_not_reach_the_loop() -> None:
    async def main() -> None:
        await asyncio.to_thread(lambda: asyncio.run(_in_a_thread()))

    async def _in_a_thread() -> None:
        on_hangup(lambda: None)

    asyncio.run(main())
    run_virtual(_in_a_thread())
