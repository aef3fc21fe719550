"""A folder with the file that a target reads."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.fuzz.engine import Broken, unguarded

_MEMORY = Path("/dev/shm")


@cache
def _root() -> Path:
    """Of a process and its forks, of which each has its own folder there: the first one removes all."""
    found = Path(tempfile.mkdtemp(prefix="colonnade-fuzz-", dir=_MEMORY if _MEMORY.is_dir() else None))
    atexit.register(shutil.rmtree, found, ignore_errors=True)
    return found


class Place:
    """Files in memory, in a folder of this process and name.

    Args:
        name: of the target.
    """

    def __init__(self, name: str) -> None:
        self._name, self._of = name, 0
        self._folder = _root()

    def hold(self, files: Mapping[str, bytes]) -> Path:
        """The folder with these files, readable by the owner alone, and no others."""
        with unguarded():
            if self._of != os.getpid():
                self._of, self._folder = os.getpid(), _root() / str(os.getpid()) / self._name
            if set(self._names()) - files.keys():
                shutil.rmtree(self._folder)
            for name, content in files.items():
                path = self._folder / name
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                    file.write(content)
        return self._folder

    def check(self, files: Mapping[str, bytes]) -> None:
        """Raises Broken if the folder holds anything else than it was given."""
        if set(self._names()) != set(files):
            raise Broken(f"the folder holds {sorted(self._names())}")
        for name, content in files.items():
            if (self._folder / name).stat().st_size != len(content):
                raise Broken(f"{name} was changed")

    def _names(self) -> list[str]:
        found = self._folder.rglob("*")
        return [str(path.relative_to(self._folder)) for path in found if not path.is_dir()]
