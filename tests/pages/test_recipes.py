"""docs/data_teams.md and docs/researchers.md: their YAML is a configuration, their Python runs."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.commands import loaded
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import load, parse
from tests.support.household import colonnade

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.M | re.S)


def blocks(page: str, kind: str) -> list[str]:
    found = [text for language, text in FENCE.findall((ROOT / "docs" / page).read_text()) if language == kind]
    assert found
    return found


def test_sections_of_data_teams_are_a_configuration() -> None:
    notation, agreed, own = map(yaml.safe_load, blocks("data_teams.md", "yaml"))
    labels = {"server": {"labels": {"source": "csv", "path": "outcome.csv", "key": "client", "label": "default"}}}
    clinic = {"clinic": {"data": {"source": "csv", "path": "clinic.csv", "key": "id"}}}
    for section in (notation, own):
        config = parse({**agreed, **labels, "parties": {**section["parties"], **clinic}})
        assert config.parties["bank"].data.model_dump()["key"] == "client"
    policy = config.parties["bank"].policy
    assert policy.max_epsilon is None and policy.protocols == ("split", "vfl_afe") and config.federation.align == "psi"


@pytest.mark.parametrize("limited", [False, True])
def test_the_policy_of_data_teams_refuses_as_its_comment_says(limited: bool) -> None:
    _, agreed, own = blocks("data_teams.md", "yaml")
    assert "# max_epsilon: 8" in own
    agreed, own = (
        yaml.safe_load(agreed),
        yaml.safe_load(own.replace("# max_epsilon", "max_epsilon") if limited else own),
    )
    clinic = {"clinic": {"data": {"source": "csv", "path": "clinic.csv", "key": "id"}}}
    config = parse({**agreed, "parties": {**own["parties"], **clinic}})
    if not limited:
        config.parties["bank"].policy.refuse("bank", config.federation)
        return
    with pytest.raises(ConfigError, match=r"policy\.max_epsilon = 8.*no federation\.privacy"):
        config.parties["bank"].policy.refuse("bank", config.federation)


@pytest.mark.slow
def test_python_of_the_researchers_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, loop, attack = blocks("researchers.md", "python")
    monkeypatch.chdir(tmp_path)
    demo = yaml.safe_load((ROOT / "experiments/demo.yaml").read_text())
    demo["federation"]["epochs"] = 1
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/demo.yaml").write_text(
        yaml.safe_dump({**demo, "every_party": {**demo["every_party"], "capture": {}}})
    )
    found: dict[str, Any] = {}
    assert "range(3)" in loop
    exec(loop.replace("range(3)", "range(1)").replace('"vimadmm", ', ""), found)
    assert set(found["results"]) == {("split", 0), ("fedbcd", 0)}
    assert all(0.1 < accuracy <= 1 and sent for accuracy, sent in found["results"].values())
    exec(attack, found)
    assert found["labels"].infer(found["attacked"], "party1")[0].accuracy > 0.1


def test_the_months_life_of_a_model_is_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands in their order but those of the service, with two epochs in place of up to 40."""
    monkeypatch.chdir(tmp_path)
    Path("june.py").write_text(blocks("month.md", "python")[-1])
    life = (ROOT / "docs/month.md").read_text()
    said = {}
    for language, block in FENCE.findall(life):
        if language or "colonnade serve " in block:
            continue
        for line in block.splitlines():
            command, *words = shlex.split(line)
            if command == "python":
                subprocess.run([sys.executable, *words], check=True)
            if command == "colonnade":
                code, said[line] = colonnade(*words, *(["--set", "federation.epochs=2"] if words[0] == "up" else []))
                assert code == 0, said[line]
    assert [line.split()[1] for line in said] == ["new", "check", "up", "predict", "up", "report"]
    drift = next(text for line, text in said.items() if line.startswith("colonnade predict"))
    assert re.search(r"bank .* amount .* shifted", drift) and re.search(
        r"clinic .* region .* [1-9]\d* .* shifted", drift
    )
    assert json.loads(Path("month/may/parties/bank/batches.jsonl").read_text())["rows"] == 40
    scores, ids = (Path(f"month/june/{name}.csv").read_text().splitlines()[1:] for name in ("scores", "ids"))
    assert [line.split(",")[0] for line in scores] == ids and all(line.split(",")[1] in "01" for line in scores)


def test_three_models_of_three_tables_are_as_written() -> None:
    """Every command has the words that it takes; every configuration that it runs is one, also of a scorecard."""
    page = (ROOT / "docs/data_teams.md").read_text()
    section = page.partition("## 8. Three models")[2].partition("## 9.")[0]
    lines = [shlex.split(line) for _, block in FENCE.findall(section) for line in block.splitlines()]
    assert len(lines) == 10
    for _, name, *words in lines:
        command = loaded(name)
        own = command.commands[words[0]] if name in ("datasets", "tables") else command
        given = own.make_context(name, words[own is not command :]).params
        if name == "up":
            config = load(ROOT / given["file"], tuple(given["sets"] or ()))
            assert config.federation.align == "psi" and len(config.federation.names) == 3
    assert len(page.split()) <= 1500
