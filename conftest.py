"""Settings of all tests: one thread, since several run at once and the tensors are small."""

from __future__ import annotations

import os
import warnings

# Before NumPy is loaded. Threads of BLAS and OpenMP wait for each other by spinning: on small matrices and a busy
# machine that takes 20 to 50 times the work's own time, in children as well.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import asyncio
import ctypes
import gc
import inspect
import logging
import signal
import threading
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from hypothesis import settings

from colonnade.common.conversation.inprocess import run_virtual
from colonnade.launcher import processes
from tests.support import warm
from tests.support.bundled import parse_once
from tests.support.patience import PATIENCE
from tests.support.warm_server import spare_the_disk

gc.disable()  # nothing that is imported or collected is garbage
torch.set_num_threads(1)
parse_once()
spare_the_disk()

# On a busy machine any example may take long: pytest's own timeout ends hanging tests. More examples have found nothing
# more, and would take half of the time of the tests without processes; `--hypothesis-profile=thorough` has them.
settings.register_profile("colonnade", deadline=None, max_examples=15)
settings.register_profile("thorough", deadline=None, max_examples=200)
settings.load_profile("colonnade")


_CACHED = type(cache(int))
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # gives freed memory back to the system
_LONG = ("processes", "browser", "netns")
_NOT_FAST = ("slow", "papers", "containers")


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with processes may take ten times as long on a busy machine; those without are `fast`."""
    for item in items:
        long = any(map(item.get_closest_marker, _LONG))
        if long and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(PATIENCE + 100))
        if not (long or any(map(item.get_closest_marker, _NOT_FAST))):
            item.add_marker(pytest.mark.fast)


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from searching what all tests share, which takes a second each time, or often."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    for name, logger in logging.root.manager.loggerDict.items():  # pytest visits all that do not, six times in a test
        if name.startswith("torch") and isinstance(logger, logging.Logger):
            logger.propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a test that is a coroutine: as its transport does, in real time if marked so, else on the virtual clock."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    body = pyfuncitem.obj(**arguments)
    if transport := arguments.get("transport"):
        transport.run(body)
    elif pyfuncitem.get_closest_marker("real_time"):
        asyncio.run(asyncio.wait_for(body, PATIENCE))
    else:
        run_virtual(body)
    return True


def pytest_runtest_setup() -> None:
    """The command line, run in this process, sets the umask for later files, and handles signals."""
    os.umask(0o022)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module", autouse=True)
def _forgotten_runs(request: pytest.FixtureRequest) -> Iterator[None]:
    """Frees what cached functions of a test module hold when it is done: whole runs, which would stay to the end."""
    yield
    for value in vars(request.module).values():
        if isinstance(value, _CACHED) and value.__module__ == request.module.__name__:
            value.cache_clear()
    _TRIM(0)


@pytest.fixture(scope="module")
def no_garbage() -> None:
    """Collects what earlier modules have left: what Python says of it is not of this one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session", autouse=True)
def _forked_fork_servers() -> Iterator[None]:
    """A command run in this process starts a fork server, even if it then refuses its arguments."""
    with warm.replace(processes):
        yield
