"""`trackers` in a configuration: forms, refusals, and that nothing of it is agreed."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.config.members import Config
from colonnade.common.errors import ConfigError, EnvironmentFault
from colonnade.common.parsing.file import parse
from colonnade.common.tracking import sections
from colonnade.common.tracking.mlflow_section import MlflowConfig, quieten
from colonnade.common.tracking.sections import TensorBoardConfig
from colonnade.common.tracking.tracker import TrackerConfig, prepare
from colonnade.launcher.readiness import check_members
from tests.support.federation import tree
from tests.support.tracking import RecorderConfig, run_tracked

SPLIT = {"name": "split", "embedding": 8}

PAGE = (Path(__file__).parents[2] / "docs" / "trackers.md").read_text()


def on_the_page(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


PLUG_IN = on_the_page("python")[0] + "\n\nNOT_ONE = 3\n"


def with_server(*trackers: Any) -> dict[str, Any]:
    made = tree(SPLIT, epochs=1)
    made["server"]["trackers"] = list(trackers)
    return made


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def installed(entry: str) -> None:
        info = tmp_path / "lines-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lines\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[colonnade.trackers]\n{entry}\n")
        (tmp_path / "tracker_of_lines.py").write_text(PLUG_IN)
        monkeypatch.syspath_prepend(tmp_path)
        sections.OUTSIDE.forget()

    yield installed
    monkeypatch.undo()
    sys.modules.pop("tracker_of_lines", None)
    sections.OUTSIDE.forget()


def test_short_and_long_forms_are_the_same() -> None:
    short, long = parse(with_server("tensorboard")), parse(with_server({"name": "tensorboard"}))
    assert short.server.trackers == long.server.trackers == (TensorBoardConfig(),)
    made = tree(SPLIT)
    made["every_party"]["trackers"] = "tensorboard"
    made["parties"] = {"party2": {"trackers": []}}
    parties = parse(made).parties
    assert parties["party1"].trackers == (TensorBoardConfig(),) and parties["party2"].trackers == ()
    assert parse(tree(SPLIT)).server.trackers == ()


def test_a_written_configuration_reads_as_before() -> None:
    """`up` writes every member's file from the parsed configuration."""
    config = parse(with_server({"name": "mlflow", "uri": "a.db", "model": True, "register": "m"}, "tensorboard"))
    written = yaml.safe_load(yaml.safe_dump(config.model_dump(mode="json", exclude_none=True)))
    assert parse(written).server.trackers == config.server.trackers
    assert config.server.trackers[0].register_as == "m"


def test_trackers_are_not_agreed() -> None:
    plain, more = parse(tree(SPLIT, epochs=1)), parse(with_server("tensorboard"))
    assert plain.federation.hashes() == more.federation.hashes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["mlfow"], "server.trackers.0.name = 'mlfow': unknown tracker (did you mean 'mlflow'?)"),
        ([{"name": "mlflow", "experimnt": "a"}], "trackers.0.experimnt: unknown key (did you mean 'experiment'?)"),
        ([{"uri": "a"}], "server.trackers.0: expected a name, or keys with a name"),
        (7, "server.trackers = 7: expected a list of names"),
        (["tensorboard", "tensorboard"], "server.trackers.1: the tracker tensorboard is listed twice"),
        ([{"name": "mlflow", "uri": 5}], "server.trackers.0.uri: Input should be a valid string"),
        ([{"name": "mlflow", "register": "m"}], "register without model: true"),
        ([{"name": "mlflow", "model": True, "register": "a/b"}], "contains neither / nor :"),
        ([{"name": "mlflow", "uri": "ftp://host/a"}], "server.trackers.0.uri begins with 'ftp'://"),
        ([{"name": "tensorboard", "model": True}], "server.trackers.0.model"),
    ],
)
def test_a_wrong_section_is_named(given: Any, words: str) -> None:
    made = tree(SPLIT)
    made["server"]["trackers"] = given
    with pytest.raises(ConfigError) as refused:
        parse(made)
    assert words in str(refused.value)


def test_an_error_names_the_party() -> None:
    made = tree(SPLIT)
    made["parties"] = {"party3": {"trackers": ["no"]}}
    with pytest.raises(ConfigError, match=r"^parties\.party3\.trackers\.0\.name = 'no'"):
        parse(made)


@pytest.mark.parametrize(
    "uri",
    [
        "http://me:canary@host", "https://canary@host/x", "http://me%3Acanary%40host:80", "sqlite://me:canary@h/a.db",
        "http://host/?password=canary", "http://host/?x=1&Token=canary",
    ],
)  # fmt: skip
def test_a_uri_with_a_password_is_refused_and_not_quoted(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(with_server({"name": "mlflow", "uri": uri}))
    assert "MLFLOW_TRACKING_PASSWORD" in refused.value.hint
    assert "canary" not in str(refused.value) + refused.value.hint
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(ConfigError) as refused:
        prepare("server.trackers", (MlflowConfig(),))
    assert "MLFLOW_TRACKING_URI" in str(refused.value) and "canary" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "module"), [("mlflow", "mlflow"), ("tensorboard", "tensorboard"), ("mlflow", "alembic")]
)
def test_a_missing_package_is_refused_before_a_run(
    name: str, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda wanted, *more: None if wanted == module else real(wanted, *more)
    )
    config, file = parse(with_server(name)), tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(with_server(name)))
    for act in (lambda: check_members(config, file), lambda: check(file, ()), lambda: run_tracked(config, tmp_path)):
        with pytest.raises(
            EnvironmentFault, match=rf"server\.trackers\.0: {name} needs the package {module}"
        ) as refused:
            act()
        assert f"pip install 'colonnade[{name}]'" in refused.value.hint
    assert sorted(tmp_path.iterdir()) == [file]


def test_where_mlflow_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    base, run = Path("/base"), Path("/run")
    assert MlflowConfig(uri="a/b.db").resolve(base, run) == "sqlite:////base/a/b.db"
    assert MlflowConfig(uri="sqlite:///b.db").resolve(base, run) == "sqlite:////base/b.db"
    assert MlflowConfig(uri="sqlite:////c/b.db").resolve(base, run) == "sqlite:////c/b.db"
    assert MlflowConfig(uri="https://host").resolve(base, run) == "https://host"
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert MlflowConfig().resolve(base, run) == "sqlite:////run/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://host:5000")
    assert MlflowConfig().resolve(base, run) == "http://host:5000"


def test_mlflow_reports_nothing_home_unless_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MLFLOW_DISABLE_TELEMETRY", "DO_NOT_TRACK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    quieten()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == os.environ["DO_NOT_TRACK"] == "true"
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    quieten()
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "false"


def test_a_tracker_of_another_package(plug_in: Callable[[str], None], tmp_path: Path) -> None:
    plug_in("lines = tracker_of_lines:Lines")
    config: Config = parse(with_server({"name": "lines", "file": "said.txt"}))
    run_tracked(config, tmp_path / "run")
    said = (tmp_path / "run" / "said.txt").read_text().splitlines()
    assert said[0] == "begins: split" and said[-1] == "completed" and "summary.json" in said
    with pytest.raises(ConfigError, match=r"server\.trackers\.0\.fil: unknown key"):
        parse(with_server({"name": "lines", "fil": "x"}))


def test_what_the_page_shows_is_read() -> None:
    (shown,) = on_the_page("yaml")
    made = tree(SPLIT, epochs=1)
    section = yaml.safe_load(shown)
    made["server"]["trackers"] = section["server"]["trackers"]
    made["parties"] = section["parties"]
    config = parse(made)
    assert config.server.trackers == (
        MlflowConfig(uri="http://127.0.0.1:5000", experiment="credit"),
        TensorBoardConfig(),
    )
    assert config.parties["party1"].trackers == (TensorBoardConfig(),)
    assert f'[project.entry-points."{sections.OUTSIDE.group}"]' in PAGE
    for section in sections.BUILT_IN.values():
        keys = {field.alias or name for name, field in section.model_fields.items()} - {"name"}
        assert all(f"| `{key}` |" in PAGE for key in keys)


def test_an_entry_that_is_no_tracker_is_refused(plug_in: Callable[[str], None]) -> None:
    plug_in("lines = tracker_of_lines:NOT_ONE")
    with pytest.raises(ConfigError, match="no subclass of TrackerConfig"):
        parse(with_server("lines"))


def test_no_package_takes_the_name_of_a_built_in_one(plug_in: Callable[[str], None]) -> None:
    plug_in("mlflow = tracker_of_lines:Lines")
    with pytest.raises(ConfigError, match="a name that is taken"):
        parse(with_server("mlflow"))


def test_a_section_may_be_given_as_an_object() -> None:
    made = with_server(RecorderConfig())
    assert isinstance(parse(made).server.trackers[0], TrackerConfig)
