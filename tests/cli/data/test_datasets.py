from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.data.datasets import app
from colonnade.common.data.known_sets import catalogue
from colonnade.common.data.known_sets.catalogue import KNOWN
from colonnade.common.errors import DataError


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wide terminal, and no data sets."""
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    monkeypatch.setattr(catalogue, "cache", lambda: tmp_path / "cache")


def said() -> str:
    return CliRunner().invoke(app, [], catch_exceptions=False).output


def rows() -> dict[str, str]:
    output = said()
    return {line.split()[0]: line for line in output.splitlines() if line.split()}


def test_lists_every_set_and_how_to_get_it() -> None:
    listed = rows()
    assert set(KNOWN) < set(listed)
    assert "comes with scikit-learn" in listed["digits"]
    assert "70,000" in listed["mnist"] and "11.6 MB" in listed["mnist"]
    assert listed["mnist"].rstrip().endswith("fetch")
    assert listed["scene15"].rstrip().endswith("by hand")


def test_says_where_a_set_lies(tmp_path: Path) -> None:
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").touch()
    assert f"{tmp_path}/adult(1of2files)" in "".join(said().split())  # a long path is folded
    (tmp_path / "adult" / "adult.test").touch()
    whole = "".join(said().split())
    assert f"{tmp_path}/adult" in whole and "of2files" not in whole


def test_fetches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []

    def fetched(name: str, into: Path, say: Callable[[str], None]) -> Path:
        asked.append((name, into))
        say("a file")
        return into / name

    monkeypatch.setattr("colonnade.common.data.known_sets.fetch.fetch", fetched)
    result = CliRunner().invoke(app, ["fetch", "mnist", "--into", str(tmp_path)])
    assert asked == [("mnist", tmp_path)]
    assert result.output.splitlines() == [
        "MNIST handwritten digits; licence: CC BY-SA 3.0",
        "a file",
        f"mnist is at {tmp_path}/mnist",
    ]


def test_an_error_goes_up_to_the_command_line() -> None:
    result = CliRunner().invoke(app, ["fetch", "mnits"])
    assert isinstance(result.exception, DataError) and "mnist" in str(result.exception)
