"""`colonnade.load`: a run's folder as properties, Arrow tables and pages."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import colonnade
from colonnade.common.errors import EnvironmentFault, InputError
from tests.cli.read.reports import NAMES, add_parties, leave


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = leave(tmp_path / "run")
    add_parties(made)
    return made


def test_a_run_reads_as_its_summary(folder: Path) -> None:
    run, summary = colonnade.load(str(folder)), json.loads((folder / "summary.json").read_text())
    assert (run.protocol, run.parties) == (summary["protocol"], tuple(summary["parties"]))
    assert run.metrics == summary["metrics"] and run.summary.keys() >= summary.keys()
    assert run.status in repr(run) and str(folder) in repr(run)


def test_events_are_a_table_with_a_column_a_field(folder: Path) -> None:
    events = colonnade.load(folder).events
    written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert isinstance(events, pa.Table) and events.num_rows == len(written)
    assert events["kind"].to_pylist() == [event["kind"] for event in written]
    assert events.schema.field("time").type == pa.float64() and events.schema.field("round").type == pa.int64()
    assert {pa.types.is_nested(field.type) for field in events.schema} == {False}


def test_a_ledger_is_the_partys_own(folder: Path) -> None:
    run, name = colonnade.load(folder), NAMES[0]
    *lines, torn = (folder / "parties" / name / "ledger.jsonl").read_text().splitlines()
    assert "}" not in torn
    assert run.ledger(name)["bytes"].to_pylist() == [json.loads(line).get("bytes") for line in lines]
    with pytest.raises(InputError, match="no party 'nobody'") as refused:
        run.ledger("nobody")
    assert NAMES[0] in refused.value.hint
    (folder / "parties" / name / "ledger.jsonl").unlink()
    with pytest.raises(InputError, match="no such file"):
        run.ledger(name)


def test_pages_lie_where_the_command_writes_them(folder: Path, tmp_path: Path) -> None:
    run = colonnade.load(folder)
    assert run.report() == folder.resolve() / "report.html" and (folder / "report.html").exists()
    assert run.report(tmp_path / "pages" / "one.html").read_text().startswith("<!doctype html")
    other = colonnade.load(leave(tmp_path / "other"))
    assert run.compare(other) == folder.resolve() / "comparison.html"
    with pytest.raises(InputError, match="named twice"):
        run.compare(run)
    with pytest.raises(InputError, match="no run to compare with"):
        run.compare()
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFault, match="cannot be made"):
        run.report(tmp_path / "file" / "page.html")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(colonnade.ColonnadeError, match="holds no run"):
        colonnade.load(tmp_path)
    assert not list(tmp_path.iterdir())


def test_public_names_exist() -> None:
    assert all(getattr(colonnade, name) is not None for name in colonnade.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        colonnade.nothing  # noqa: B018
