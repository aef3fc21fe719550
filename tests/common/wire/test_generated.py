"""What is committed under common/wire/_generated is what proto/ gives."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "common" / "wire" / "_generated"


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proto") / "generated"
    runpy.run_path(str(ROOT / "proto" / "generate.py"))["generate"](folder)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.suffix in (".py", ".pyi")}


def test_the_generated_modules_are_those_of_the_proto_files(regenerated: Path) -> None:
    made, committed = contents(regenerated), contents(COMMITTED)
    assert sorted(made) == sorted(committed)
    differing = [name for name in made if made[name] != committed[name]]
    assert not differing, "run `make proto` and commit what it writes"


def test_every_proto_file_gives_a_module(regenerated: Path) -> None:
    protos = {path.stem for path in (ROOT / "proto").glob("*.proto")}
    assert {f"{name}_pb2.py" for name in protos} < set(contents(regenerated))
