"""Events in the standard `logging`: levels, silence by default, and no text that a terminal would obey."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colonnade.common.errors import ConfigError
from colonnade.common.observability.telemetry import LEVELS, Telemetry, write_to_stderr
from tests.support.federation import config, federate

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "watching.md").read_text()


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """The logger `colonnade`, put back afterwards."""
    found = logging.getLogger("colonnade")
    handlers, level = list(found.handlers), found.level
    yield found
    found.handlers[:] = handlers
    found.setLevel(level)


def kinds() -> set[str]:
    """Kinds of events in the sources."""
    found = set()
    for folder in ("client", "colonnade", "common", "server"):
        for path in (ROOT / folder).rglob("*.py"):
            if ".event(" not in (text := path.read_text()):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "event":
                    found |= {
                        arg.value
                        for arg in node.args[:1]
                        if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
                    }
    return found


def test_every_kind_of_event_has_a_level_and_a_place_on_the_page() -> None:
    assert len(kinds()) > 20
    assert kinds() <= set(LEVELS)
    for kind, level in LEVELS.items():
        (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{logging.getLevelName(level).lower()}` |")]
        assert f" {kind}," in row + "," or f"{kind} |" in row, kind


def test_a_run_is_logged_with_rounds_at_debug_and_evaluations_at_info(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "colonnade"):
        federate(config({"name": "split"}, "federation.epochs=0", "federation.rounds=2"))
    found = {(record.name, record.levelname, record.getMessage().split()[0]) for record in caplog.records}
    assert {("colonnade.simulation", "DEBUG", "round"), ("colonnade.simulation", "INFO", "evaluation")} <= found
    rounds = [record for record in caplog.records if record.getMessage().startswith("round ")]
    assert [record.event["round"] for record in rounds] == [1, 2]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("status", "level"), [("", "INFO"), ("completed", "INFO"), ("interrupted", "WARNING"), ("failed", "ERROR")]
)
def test_the_end_of_a_run_has_the_level_of_its_status(
    status: str, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "colonnade"):
        Telemetry(log="server").event("end", **({"status": status} if status else {}))
    assert [record.levelname for record in caplog.records] == [level]


def test_a_record_has_plain_values_without_control_characters(caplog: pytest.LogCaptureFixture) -> None:
    reason = "a\x1b[2J\nb\u202e" + "x" * 9999
    with caplog.at_level(logging.DEBUG, "colonnade"):
        Telemetry(log="party.bank").event("warning", party="bank", reason=reason, of={"no": 1}, q=0.5)
    (record,) = caplog.records
    text = record.getMessage()
    assert text.startswith("warning party=bank reason=") and text.endswith("q=0.5") and len(text) < 600
    assert text.isprintable() and "no" not in text
    assert (record.name, record.levelno) == ("colonnade.party.bank", logging.WARNING)
    assert record.event["of"] == {"no": 1}  # type: ignore[attr-defined]


def test_a_flood_of_refusals_is_logged_at_a_bounded_rate(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "colonnade"):
        telemetry = Telemetry(log="server")
        for _ in range(1000):
            telemetry.refused("anybody", "no", "198.51.100.7")
    assert len(caplog.records) <= 21


def test_nothing_is_formatted_that_nobody_reads(monkeypatch: pytest.MonkeyPatch, logger: logging.Logger) -> None:
    from colonnade.common.observability import telemetry

    def never(_event: object) -> str:
        raise AssertionError("formatted")

    monkeypatch.setattr(telemetry, "_text", never)
    logger.setLevel(logging.ERROR)
    telemetry = Telemetry(log="server")
    for kind, level in LEVELS.items():
        if level < logging.ERROR:
            telemetry.event(kind)
    with pytest.raises(AssertionError, match="formatted"):
        telemetry.event("failed")


def test_a_library_prints_nothing_by_itself() -> None:
    script = (
        "from colonnade.common.observability.telemetry import Telemetry\n"
        "t = Telemetry(log='server')\n"
        "for kind in ('round', 'warning', 'failed'): t.event(kind, reason='x')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_level_of_the_variable_writes_to_standard_error(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    write_to_stderr("Warning")
    telemetry = Telemetry(log="party.ada")
    telemetry.event("round", round=1)
    telemetry.event("late", party="ada", round=1)
    said = capsys.readouterr()
    assert said.out == "" and said.err.endswith("WARNING colonnade.party.ada: late party=ada round=1\n")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("word", ["loud", "warn", "10", "de\x1bbug"])
def test_an_unknown_level_is_refused_by_its_name(word: str, logger: logging.Logger) -> None:
    with pytest.raises(ConfigError, match="COLONNADE_LOG = ") as refused:
        write_to_stderr(word)
    assert str(refused.value).isprintable() and "debug, info, warning, error" in refused.value.hint
