"""SIGHUP as a request to read files again, as services take it; closing the terminal still ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress


def on_hangup(call: Callable[[], None]) -> None:
    """Calls a function in this thread's event loop at every SIGHUP.

    Does nothing where signals do not reach the loop: outside a process's first thread, and on a virtual clock.
    """
    began_with = has_terminal()

    def hear() -> None:
        if began_with and not has_terminal():  # the terminal was closed
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            call()

    with suppress(NotImplementedError, ValueError, RuntimeError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hear)


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
