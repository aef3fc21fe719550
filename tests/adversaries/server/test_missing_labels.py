"""Missing labels: `missing: drop` leaves their rows out of the alignment, and reports their number.

Bounds: no cell.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from colonnade.cli.checks.check import check
from colonnade.common.config.members import Config
from colonnade.common.data.sources import load_labels
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from colonnade.simulation.federation import Simulation
from tests.cli.run.test_up import events
from tests.support.household import colonnade
from tests.support.tables import table_tree, write_tables

EVERY = 7  # this row and every seventh after it has no label


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables of a server and two parties; the server does not know every label."""
    write_tables(tmp_path)
    lines = rows(tmp_path)
    for line in lines[::EVERY]:
        line["label"] = " " if line["who"].endswith("1") else ""
    write(tmp_path, lines)
    return tmp_path


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "server.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def write(folder: Path, lines: list[dict[str, str]]) -> None:
    with (folder / "server.csv").open("w", newline="") as file:
        out = csv.DictWriter(file, ["who", "label"])
        out.writeheader()
        out.writerows(lines)


def tree(**federation: Any) -> dict[str, Any]:
    made = table_tree(epochs=1, **federation)
    made["server"]["labels"]["missing"] = "drop"
    return made


def labelled(folder: Path) -> set[str]:
    return {line["who"] for line in rows(folder) if line["label"].strip()}


def test_rows_without_a_label_stop_the_server_by_default(folder: Path) -> None:
    cfg = parse(table_tree())
    assert cfg.server is not None
    with pytest.raises(DataError, match=r"server\.csv, line 2, column 'label': the value is missing") as refused:
        load_labels(cfg.server.labels, folder)
    assert "missing: drop" in refused.value.hint


def test_they_are_left_out_and_counted(folder: Path) -> None:
    cfg = parse(tree())
    assert cfg.server is not None
    found, lines = load_labels(cfg.server.labels, folder), rows(folder)
    assert set(found.ids or ()) == labelled(folder) and len(found.values) == len(labelled(folder))
    assert found.dropped == len(lines[::EVERY]) == len(lines) - len(found.values)
    known = {line["who"]: line["label"] for line in lines}
    assert [str(value) for value in found.values.tolist()] == [known[id] for id in found.ids or ()]


def test_keys_of_unlabelled_rows_are_not_offered(folder: Path) -> None:
    outcome = Simulation(parse(tree()), folder).run()
    parties = [{line["who"] for line in csv.DictReader((folder / f"party{n}.csv").open())} for n in (1, 2)]
    assert len(outcome.server.labels) == len(labelled(folder) & parties[0] & parties[1])


def test_check_reports_their_number(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "federation.yaml"
    file.write_text(yaml.safe_dump(tree()))
    check(file, ())
    lines = rows(folder)
    assert f"{len(lines[::EVERY])} of {len(lines)} rows have no label and are left out" in capsys.readouterr().out


def test_a_mark_that_stands_for_a_missing_label_is_told_with_the_setting_that_drops_it(folder: Path) -> None:
    lines, config, file = rows(folder), tree(), folder / "federation.yaml"
    write(folder, [{**line, "label": line["label"].strip() or "-"} for line in lines])
    file.write_text(yaml.safe_dump(config))
    with pytest.raises(DataError, match=r"2 classes, the labels have 3 \(-, 0, 1\)") as refused:
        check(file, ())
    assert "`missing_values: ['-'], missing: drop` of the labels" in refused.value.hint
    config["server"]["labels"]["missing_values"] = ["-"]
    file.write_text(yaml.safe_dump(config))
    check(file, ())


def test_the_server_reports_their_number(folder: Path) -> None:
    file, out = folder / "federation.yaml", folder / "run"
    file.write_text(yaml.safe_dump(tree()))
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output
    (said,) = [event["reason"] for event in events(out, "warning") if "label" in event["reason"]]
    lines = rows(folder)
    assert said == f"{len(lines[::EVERY])} of {len(lines)} rows have no label and are left out"


def test_without_alignment_it_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.labels\.missing = drop with federation\.align = none") as refused:
        parse(tree(align="none"))
    assert "align rows by keys" in refused.value.hint


def test_a_table_of_numbers_goes_by_its_own_words_for_missing(tmp_path: Path) -> None:
    (tmp_path / "server.csv").write_text("who,y,z\na,1.5,2\nb,NA,3\nc,,4\nd,2.5,?\ne,3,4\n")
    cfg = numbers(["y", "z"])
    assert cfg.server is not None
    found = load_labels(cfg.server.labels, tmp_path, "regression")
    assert found.ids == ("a", "e") and found.dropped == 3
    assert torch.equal(found.values, torch.tensor([[1.5, 2.0], [3.0, 4.0]], dtype=torch.float64))


def test_a_table_without_any_label_is_refused(tmp_path: Path) -> None:
    (tmp_path / "server.csv").write_text("who,y\na,\nb,\n")
    for task, cfg in (("regression", numbers("y")), ("classification", parse(tree()))):
        assert cfg.server is not None
        labels = cfg.server.labels.model_copy(update={"label": "y"})
        with pytest.raises(DataError, match="has no row with a label"):
            load_labels(labels, tmp_path, task)


def numbers(label: str | list[str]) -> Config:
    made = tree()
    made["federation"] |= {"task": "regression", "targets": 1 if isinstance(label, str) else len(label)}
    del made["federation"]["classes"]
    made["server"]["labels"]["label"] = label
    return parse(made)


@pytest.mark.parametrize("lacking", [None, float("nan")], ids=["null", "not a number"])
def test_other_tables_write_what_is_missing_otherwise(tmp_path: Path, lacking: float | None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"who": ["a", "b", "c"], "y": pa.array([0.0, lacking, 1.0], pa.float64())})
    pq.write_table(table, tmp_path / "server.parquet")
    made = tree()
    source = {"source": "parquet", "path": "server.parquet", "key": "who"}
    made["server"]["labels"] = {**source, "label": "y", "missing": "drop"}
    cfg = parse(made)
    assert cfg.server is not None
    found = load_labels(cfg.server.labels, tmp_path)
    assert (found.ids, found.values.tolist(), found.dropped) == (("a", "c"), [0, 1], 1)


def test_columns_of_the_servers_own_go_without_them_too(folder: Path) -> None:
    """Its own table has all rows, in the labels' order."""
    lines = rows(folder)
    with (folder / "own.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["who", "age"])
        out.writerows([line["who"], number] for number, line in enumerate(lines))
    made = tree(protocol={"name": "vfedmh", "embedding": 8, "aggregate": "clear"})
    made["server"]["active"] = {"data": {"source": "csv", "path": "own.csv", "id": "who", "scale": "none"}}
    outcome = Simulation(parse(made), folder).run()
    assert outcome.server.columns is not None and len(outcome.server.columns[torch.arange(len(outcome.server.labels))])
    assert outcome.server.columns.shape[0] == len(outcome.server.labels) < len(labelled(folder))
