"""Packages with protocols, put where Python finds them, without pip."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.common.contracts.registry import OUTSIDE
from tests.support.outside import EXAMPLE, Install


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package where Python finds it, with entry points as pip would write them."""

    def installed(name: str, value: str, source: str = "", package: str = "colonnade-signs") -> Path:
        folder = tmp_path / package
        info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{OUTSIDE.group}]\n{name} = {value}\n")
        (folder / f"{value}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)
        forget()
        return folder

    def forget() -> None:
        OUTSIDE.forget()

    before = set(sys.modules)
    yield installed
    for module in set(sys.modules) - before:
        if module.endswith("_signs"):
            del sys.modules[module]
    monkeypatch.undo()
    forget()


@pytest.fixture
def signs(install: Install) -> Path:
    return install("signs", "colonnade_signs", EXAMPLE.read_text())
