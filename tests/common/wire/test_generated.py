"""Committed wire files equal generated ones: .proto files from messages, Python modules from .proto files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.messages import PROTO, generator

COMMITTED = PROTO.parent / "common" / "wire" / "_generated"


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proto")
    generator()["generate"](folder / "generated", folder)
    return folder


def contents(folder: Path, *endings: str) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix in endings}


def test_the_generated_modules_are_those_of_the_proto_files(regenerated: Path) -> None:
    made, committed = contents(regenerated / "generated", ".py", ".pyi"), contents(COMMITTED, ".py", ".pyi")
    assert sorted(made) == sorted(committed)
    differing = [name for name in made if made[name] != committed[name]]
    assert not differing, "run `make proto` and commit what it writes"


def test_the_proto_files_match_the_messages(regenerated: Path) -> None:
    """A field that moved, or has another type, is seen here: its number is its place."""
    made, committed = contents(regenerated, ".proto"), contents(PROTO, ".proto")
    assert set(made) | {f"{name}.proto" for name in generator()["BY_HAND"]} == set(committed)
    differing = [name for name in made if made[name] != committed[name]]
    assert not differing, "run `make proto` and commit what it writes"


def test_every_proto_file_that_is_written_by_hand_gives_a_module(regenerated: Path) -> None:
    assert {f"{name}_pb2.py" for name in generator()["BY_HAND"]} < set(contents(regenerated / "generated", ".py"))
