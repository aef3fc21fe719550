"""Packages that a test puts where Python finds them, with entry points as pip writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from colonnade.cli.read.protocols import GROUPS


class Packages:
    """Packages of one test, each in a folder of its own.

    Args:
        folder: an empty one.
        monkeypatch: undoes the changes of sys.path.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch
        self._modules: set[str] = set()

    def make(self, package: str, group: str, entries: Mapping[str, str], source: str, version: str = "1.0") -> Path:
        """Writes a package of one module, which its entries name, and returns the folder that holds both."""
        folder = self._folder / f"{package}-{version}"
        info = folder / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        lines = [f"{name} = {value}" for name, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[colonnade.{group}]", *lines, ""]))
        module = next(iter(entries.values())).partition(":")[0]
        (folder / f"{module}.py").write_text(source)
        self._modules.add(module)
        return folder

    def install(self, package: str, group: str, entries: Mapping[str, str], source: str, version: str = "1.0") -> Path:
        """The same, and it is found from now on, in place of an earlier one of its name."""
        folder = self.make(package, group, entries, source, version)
        self._monkeypatch.syspath_prepend(folder)
        self.forget()
        return folder

    def forget(self) -> None:
        """Drops all that is known of plug-ins."""
        for module in self._modules:
            sys.modules.pop(module, None)
        for plug_ins in GROUPS:
            plug_ins.forget()
