"""`colonnade check` looks at model files and runs nothing of them, unless it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.config.models import OwnConfig
from colonnade.common.errors import ConfigError
from tests.support.tables import table_tree, write_tables

TOWER = """
import pathlib
pathlib.Path(__file__).with_name("ran").touch()
from torch import nn

class Tower(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(shape[0], 16)
    def forward(self, x):
        return self.layer(x)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tables(tmp_path)
    tree = table_tree(align="psi")
    tree["parties"]["party1"]["model"] = {"file": "./tower.py:Tower"}
    tree["server"]["head"] = {"file": "./tower.py:Tower"}
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(tree))
    (tmp_path / "tower.py").write_text(TOWER)
    return tmp_path / "federation.yaml"


def test_the_code_of_a_model_is_not_run_and_the_output_says_so(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(file, ())
    said = capfd.readouterr().out
    assert not file.with_name("ran").exists()
    assert "parties.party1.model: ./tower.py:Tower is there and was not run; --run-models runs it" in said
    assert "server.head: ./tower.py:Tower is there and was not run" in said


def test_it_is_run_on_demand(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"parties.party1.model makes 16 numbers of a row") as refused:
        check(file, ("federation.protocol.embedding=3",), run_models=True)
    assert file.with_name("ran").exists() and refused.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file .*tower.py"),
        ("class Tower(:\n", ".*tower.py is not Python"),
        ("class Tour: pass\n", "has no class or function 'Tower' .did you mean 'Tour'"),
        ("\0", "is not Python"),
        ("(" * 5000, "is not Python"),
    ],
)
def test_what_can_be_found_without_running_it(file: Path, text: str | None, said: str) -> None:
    if text is None:
        file.with_name("tower.py").unlink()
    else:
        file.with_name("tower.py").write_text(text)
    with pytest.raises(ConfigError, match=said):
        check(file, ())


@pytest.mark.parametrize(
    "text",
    [
        "from towers import Tower", "from towers import Wide as Tower", "import a as Tower", "Tower = make(3)",
        "Tower: object = 1", "def Tower(): pass", "if True:\n    class Tower: pass",
        "try:\n    import x\nexcept ImportError:\n    Tower = None", "a, (Tower, b) = f()",
    ],
)  # fmt: skip
def test_ways_to_define_a_model(tmp_path: Path, text: str) -> None:
    (tmp_path / "tower.py").write_text(text)
    OwnConfig(file="./tower.py:Tower").find(tmp_path)
