"""`colonnade new protocol`: a package whose tests pass as it is written."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.outside.conftest import install  # noqa: F401  # a fixture
from tests.support.household import colonnade
from tests.support.outside import Install


def test_it_registers_itself(tmp_path: Path, install: Install) -> None:  # noqa: F811
    """pip, and the package's own tests: tests/test_distribution.py."""
    folder = tmp_path / "new"
    code, said = colonnade("new", "protocol", "my_way2", "--out", folder)
    assert code == 0 and f"next: cd {folder} && pip install -e '.[test]' && pytest" in said, said
    project = tomllib.loads((folder / "pyproject.toml").read_text())
    assert project["project"]["name"] == "colonnade-my-way2"
    assert project["project"]["entry-points"]["colonnade.protocols"] == {"my_way2": "colonnade_my_way2"}
    install("my_way2", "colonnade_my_way2", (folder / "colonnade_my_way2.py").read_text(), "colonnade-my-way2")
    code, said = colonnade("show", "my_way2")
    assert code == 0 and said.count("async def serve") == 1, said
    code, said = colonnade("simulate", folder / "federation.yaml", "--out", tmp_path / "run")
    assert code == 0 and "test accuracy" in said, said


def test_its_style_is_the_houses(tmp_path: Path) -> None:
    assert colonnade("new", "protocol", "mine", "--out", tmp_path / "new")[0] == 0
    config = str(Path(__file__).parents[3] / "pyproject.toml")
    for command in (("check",), ("format", "--check")):
        words = [sys.executable, "-m", "ruff", *command, "--config", config, tmp_path / "new"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name", ["Split", "my-way", "2nd", "class", "_x", "x_", "a__b", "é", "", "x" * 41, "../x", "a b"]
)
def test_a_wrong_name_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    code, said = colonnade("new", "protocol", name)
    assert code == 2 and "is not a name for a protocol" in " ".join(said.split()), said
    assert not list(tmp_path.iterdir())


def test_a_name_that_is_taken(tmp_path: Path) -> None:
    code, said = colonnade("new", "protocol", "split", "--out", tmp_path / "new")
    assert code == 2 and "there is a protocol 'split' already" in said
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    code, said = colonnade("new", "protocol", "mine", "--out", tmp_path)
    assert code == 2 and "is not empty" in " ".join(said.split())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
