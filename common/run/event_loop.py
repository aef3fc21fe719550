"""Event loops of this process: on the caller's thread, in a thread of their own, and the signals that reach them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
LoopFactory = Callable[[], asyncio.AbstractEventLoop]

_LOOK = 0.1  # seconds between two looks for an interrupt


def run_on_own_loop(main: Coroutine[Any, Any, T], loop_factory: LoopFactory) -> T:
    """Runs a coroutine to its end, and raises what it raises.

    An interrupt of the caller cancels the coroutine; KeyboardInterrupt is raised once it has ended.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        value: list[T] = []
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_keep(main, value))
        return value[0]
    found: T = _Apart(main, loop_factory).result()
    return found


async def _keep(main: Coroutine[Any, Any, T], value: list[T]) -> None:
    """Stores a coroutine's result in a list.

    The task must not return it: `asyncio.Runner` replaces a signal handler that refers to the task, whereupon the enum
    of handlers formats both, results with all their tensors included.
    """
    value.append(await main)


def interrupts_raised() -> AbstractContextManager[None]:
    """Ctrl-C raises KeyboardInterrupt in the block, also under `asyncio.run`, whose loop would cancel its own task."""
    return _handled_by(signal.default_int_handler)


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Handles Ctrl-C in the block; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class _Apart:
    """Runs `run_on_own_loop` in its own thread."""

    def __init__(self, main: Coroutine[Any, Any, T], loop_factory: LoopFactory) -> None:
        self._main, self._loop_factory = main, loop_factory
        self._value: list[Any] = []
        self._error: BaseException | None = None
        self._cancel: Callable[[], object] | None = None
        self._interrupts = 0
        self._thread = threading.Thread(target=self._run, name="colonnade", daemon=True)

    def result(self) -> Any:
        with _handled_by(self._note):
            self._thread.start()
            cancelled = False
            while self._thread.is_alive():
                self._thread.join(_LOOK)
                if self._interrupts and not cancelled and self._cancel is not None:
                    cancelled = True
                    self._cancel()
        if self._interrupts:
            raise KeyboardInterrupt
        if self._error is not None:
            raise self._error
        return self._value[0]

    def _note(self, _number: int, _frame: object) -> None:
        self._interrupts += 1  # nothing is raised before the thread has ended: it works in a locked folder

    def _run(self) -> None:
        async def noted() -> None:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None  # inside a task
            self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
            await _keep(self._main, self._value)

        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(noted())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self._error = error


class LoopThread:
    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


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
