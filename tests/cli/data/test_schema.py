"""`colonnade schema` and the keys in `colonnade show`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from colonnade.cli.main import app
from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.parsing.json_schema import configuration_schema
from colonnade.server.prediction.serving.openapi import document
from tests.cli.data.test_wrong_input import run


def test_the_schema_is_printed_as_json_and_nothing_else() -> None:
    said = CliRunner().invoke(app, ["schema"])
    assert said.exit_code == 0 and json.loads(said.stdout) == configuration_schema()
    said = CliRunner().invoke(app, ["schema", "--openapi"])
    assert said.exit_code == 0 and json.loads(said.stdout) == document()


def test_the_schema_is_written_to_a_file(tmp_path: Path) -> None:
    file = tmp_path / "colonnade.schema.json"
    said = CliRunner().invoke(app, ["schema", "--out", str(file)])
    assert said.exit_code == 0 and json.loads(file.read_text()) == configuration_schema()
    assert f"# yaml-language-server: $schema={file}" in said.stdout


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, said = run(monkeypatch, capfd, "schema", "--out", tmp_path / "nowhere" / "x.json")
    assert code == 4 and "cannot be written" in said and "in a folder that exists" in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_a_protocol_is_shown_with_its_keys(name: str) -> None:
    said = CliRunner().invoke(app, ["show", name])
    assert said.exit_code == 0
    head = " ".join(said.stdout.partition("class Config")[0].split())
    assert f"keys of federation.protocol: {name}" in head
    assert all(f" {key} " in head for key in CONTRACTS[name].config.model_fields)


def test_an_unknown_log_level_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLONNADE_LOG", "loud")
    code, said = run(monkeypatch, capfd, "protocols")
    assert code == 2 and "COLONNADE_LOG = 'loud'" in said
