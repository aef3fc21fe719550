"""Tables from their cutting to a run that goes on."""

from __future__ import annotations

import csv
import json
import shutil
import signal
from pathlib import Path
from random import Random

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from colonnade.cli.data.datasets import tables_app
from colonnade.cli.data.deal import DealTerms, deal
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.members import Config
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.data.split import share
from colonnade.common.errors import InputError
from colonnade.common.parsing.file import load
from colonnade.launcher.prediction_files import PredictionIds
from tests.cli.run.test_up import finish, start, wait_for_round
from tests.support.household import colonnade

PARTIES = ("bank", "shop")
ROOT = Path(__file__).parents[3]


@given(st.integers(1, 60), st.integers(2, 5), st.floats(0.05, 1), st.integers(0, 9))
def test_common_rows_are_in_all_tables_and_other_rows_in_some(
    persons: int, members: int, overlap: float, seed: int
) -> None:
    known = share(persons, members, overlap, seed)
    assert len(known) == members and all(len(set(rows.tolist())) == len(rows) for rows in known)
    assert len(set.intersection(*(set(rows.tolist()) for rows in known))) == round(overlap * persons)
    assert set().union(*(set(rows.tolist()) for rows in known)) == set(range(persons))
    assert all(map(np.array_equal, known, share(persons, members, overlap, seed)))


@pytest.mark.parametrize("overlap", [0, -1, 1.5, float("nan")])
def test_an_overlap_that_is_none(overlap: float) -> None:
    with pytest.raises(InputError, match="expected a share above 0"):
        share(10, 2, overlap, 0)


def test_a_data_set_is_cut_by_columns_and_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    (tmp_path / "credit-default").mkdir()
    rows = [[number, number * 10, number * 100, number % 2] for number in range(40)]
    with (tmp_path / "credit-default" / "UCI_Credit_Card.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([["ID", "LIMIT_BAL", "AGE", "default.payment.next.month"], *rows])
    words = ["credit", "--out", str(tmp_path / "cut"), "--parties", "2", "--overlap", "0.5"]
    CliRunner().invoke(tables_app, words, catch_exceptions=False)
    tables = {path.stem: list(csv.DictReader(path.open())) for path in (tmp_path / "cut").glob("*.csv")}
    requested = [row["key"] for row in tables.pop("ids")]
    assert set(tables) == {"server", "party1", "party2"}
    by_key = [{row["key"]: row for row in table} for table in tables.values()]
    common = set.intersection(*map(set, by_key))
    assert len(common) == 20 and all(20 < len(table) < 40 for table in by_key)
    assert requested == [key for key in by_key[[*tables].index("server")] if key in common]
    assert len({tuple(key for key in table if key in common) for table in by_key}) == 3  # orders of their own
    for key in common:
        whole = {name: value for table in by_key for name, value in table[key].items()}
        number = int(whole["AGE"]) // 100
        assert whole["LIMIT_BAL"] == str(number * 10) and whole["default.payment.next.month"] == str(number % 2)


def federation(folder: Path, persons: int = 60) -> Path:
    """Two parties and a server with the same rows, in the same order."""
    draw = Random(0)
    keys = draw.sample(range(1000), persons)
    columns = {
        "bank": ("income,town", [f"{draw.gauss(0, 1):.3f},{draw.choice(['Kiel', 'Ulm', ''])}" for _ in keys]),
        "shop": ("visits", [str(draw.randrange(50)) for _ in keys]),
        "server": ("default", [draw.choice(["yes", "no"]) for _ in keys]),
    }
    for name, (header, cells) in columns.items():
        lines = [f"client,{header}", *(f"{key},{cell}" for key, cell in zip(keys, cells, strict=True)), ""]
        (folder / f"{name}.csv").write_text("\n".join(lines))
    data = {"source": "csv", "key": "client", "missing": "mean"}
    tree = {
        "federation": {
            "id": "tables",
            "protocol": {"name": "split", "embedding": 4},
            "parties": list(PARTIES),
            "classes": 2,
            "epochs": 0,
            "rounds": 2000,
            "batch": 16,
            "checkpoint": {"rounds": 5},
        },
        "server": {"labels": {"source": "csv", "path": "server.csv", "id": "client", "label": "default"}},
        "every_party": {"data": data},
        "parties": {name: {"data": {"path": f"{name}.csv"}} for name in PARTIES},
    }
    (folder / "federation.yaml").write_text(yaml.safe_dump(tree))
    return folder / "federation.yaml"


def test_dealt_tables_are_keyed_typed_and_not_encoded(tmp_path: Path) -> None:
    file, out = federation(tmp_path), tmp_path / "dealt"
    deal(file, (), out, DealTerms("labels.example.org:7400", days=2))
    whole: Config = load(file)
    for place, name in enumerate(PARTIES):
        own = load(out / name / "config.yaml").parties[name]
        dealt = load_features(own.data, PartyIndex(0, 1), out / name)
        meant = load_features(whole.parties[name].data, PartyIndex(place, 2), tmp_path)
        assert dealt.fingerprint == meant.fingerprint and dealt.ids == meant.ids and dealt.ids is not None
        assert own.data.model_dump()["missing"] == "mean"
        assert [path.name for path in (out / name / "data").iterdir()] == ["columns.parquet"]
    server = load(out / "server" / "config.yaml").server
    assert server is not None
    assert load_labels(server.labels, out / "server").ids == meant.ids
    requested = PredictionIds(out / "server" / "ids.csv", like="client")
    assert 0 < requested.count() < 60 and set(requested.ids()) < set(meant.ids or ())


def test_cut_tables_train_and_predict_the_ids_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    (tmp_path / "credit-default").mkdir()
    draw = Random(1)
    header = ["ID", "SEX", "EDUCATION", "MARRIAGE", *(f"X{place}" for place in range(6)), "default.payment.next.month"]
    rows = [[number, *(draw.randrange(5) for _ in range(9)), number % 2] for number in range(900)]
    with (tmp_path / "credit-default" / "UCI_Credit_Card.csv").open("w", newline="") as lines:
        csv.writer(lines).writerows([header, *rows])
    CliRunner().invoke(tables_app, ["credit", "--out", str(tmp_path / "credit")], catch_exceptions=False)
    file = shutil.copy(ROOT / "experiments/tables/credit.yaml", tmp_path)
    code, output = colonnade("up", file, "--set", "federation.epochs=1", "--out", tmp_path / "run")
    assert code == 0, output
    ids, out = tmp_path / "credit/ids.csv", tmp_path / "predictions.csv"
    code, output = colonnade("predict", tmp_path / "run", "--ids", ids, "--out", out)
    assert code == 0, output
    predicted = list(csv.DictReader(out.open()))
    assert [row["id"] for row in predicted] == [row["key"] for row in csv.DictReader(ids.open())]
    assert len(predicted) == 100 and all(row["class"] for row in predicted)


@pytest.mark.processes
def test_a_run_that_goes_on_has_its_encoder_and_refuses_another_table(tmp_path: Path) -> None:
    file, out = federation(tmp_path), tmp_path / "run"
    process = start("up", file, "--out", out)
    wait_for_round(out, 2, process, "checkpoint")
    process.send_signal(signal.SIGINT)
    finish(process)
    kept = out / "parties" / "bank" / "encoder.json"
    encoder = json.loads(kept.read_text())
    assert [column["own"] for column in encoder["columns"]] == [False, True]
    table = tmp_path / "bank.csv"
    whole = table.read_text()
    table.write_text(whole.replace("Kiel", "Rome", 1))
    code, output = colonnade("up", "--resume", out)
    assert code != 0 and "the table has changed since the run was begun" in output
    assert "Rome" not in output and "Rome" not in (out / "summary.json").read_text()
    table.write_text(whole)
    again = start("up", "--resume", out)
    wait_for_round(out, 1, again, "resume")
    again.send_signal(signal.SIGINT)
    finish(again)
    assert json.loads(kept.read_text()) == encoder
