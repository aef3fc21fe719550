"""Command lines and environments of Python processes that this program starts.

Python puts the working directory first on `sys.path` for `-m` and `-c`, and for every empty entry of PYTHONPATH
(`PYTHONPATH=$PYTHONPATH:/plug-ins` with an unset variable has one). A file `selectors.py` in a folder where a command
happens to run would then replace the standard library's. Light: every command imports this.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator, Mapping

_PR_SET_PDEATHSIG = 1
_PATHS = "PYTHONPATH"
_SAFE = "PYTHONSAFEPATH"


def python_module(name: str, *words: str) -> list[str]:
    """Command line of `python -m NAME WORDS` without the working directory on the child's path."""
    return [sys.executable, "-P", "-m", name, *words]


def end_with_parent(number: int, parent: int) -> None:
    """Has the kernel send this process a signal when its parent ends; ends it at once if that is no longer `parent`."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it ended before prctl took effect
        os._exit(1)


def child_environment(**changes: str) -> dict[str, str]:
    """This process's environment for a Python child: PYTHONPATH without entries that name no folder; and `changes`."""
    environment = {**os.environ, **changes}
    if (paths := environment.get(_PATHS)) is not None:
        environment[_PATHS] = os.pathsep.join(filter(None, paths.split(os.pathsep)))
        if not environment[_PATHS]:
            del environment[_PATHS]
    return environment


@contextlib.contextmanager
def safe_children() -> Iterator[None]:
    """The same for processes whose command lines a library writes, such as those of `multiprocessing`."""
    before = {name: os.environ.get(name) for name in (_SAFE, _PATHS)}
    _put({_SAFE: "1", _PATHS: child_environment().get(_PATHS)})
    try:
        yield
    finally:
        _put(before)


def _put(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
