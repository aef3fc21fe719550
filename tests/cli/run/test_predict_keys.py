"""Predictions by keys: of rows unknown to the server, without a party, and of changed tables."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from colonnade.runs import load
from tests.cli.data.test_deal import free_port
from tests.cli.run.test_predict import write_ids
from tests.support.household import colonnade, household
from tests.support.tables import table_tree, write_tables

pytestmark = pytest.mark.slow


def add_town(table: Path, town: str) -> None:
    """A column that is the same for all."""
    header, *rows = table.read_text().splitlines()
    table.write_text("\n".join([f"{header},town", *(f"{row},{town}" for row in rows)]) + "\n")


@pytest.fixture(scope="module")
def with_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """A run over tables that partly overlap, and the keys of each."""
    folder = tmp_path_factory.mktemp("keys")
    ids = write_tables(folder)
    add_town(folder / "party1.csv", "Ulm")
    (folder / "federation.yaml").write_text(yaml.safe_dump(table_tree(keys={"case": "fold"})))
    code, output = colonnade("up", folder / "federation.yaml", "--out", folder / "run")
    assert code == 0, output
    yield folder, ids


def test_rows_known_only_to_the_parties_are_predicted_by_their_keys(
    with_keys: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, ids = with_keys
    both = set(ids["party1"]) & set(ids["party2"])
    new, lone = sorted(both - set(ids["server"])), sorted(set(ids["party1"]) - both)[0]
    known = [key for key in ids["server"] if key in both]
    assert new  # without a label at the server
    asked = write_ids(tmp_path / "ids.csv", [*known, *new, lone, f"  {new[0].upper()} "])
    code, output = colonnade("predict", folder / "run", "--ids", asked, "--out", tmp_path / "out.csv")
    output = " ".join(output.split())
    assert code == 0, output
    assert f"{len(known) + len(new)} of {len(known) + len(new) + 1} ids are known to all members" in output
    with (tmp_path / "out.csv").open(newline="") as lines:
        said = {row["id"]: row for row in csv.DictReader(lines)}
    with (folder / "server.csv").open(newline="") as lines:
        truth = {row["who"]: row["label"] for row in csv.DictReader(lines)}
    hits = [said[key]["class"] == truth[key] for key in known]
    assert sum(hits) / len(hits) > 0.8
    assert all(said[key]["class"] for key in new) and said[lone]["class"] == ""
    assert said[f"  {new[0].upper()} "]["p_1"] == said[new[0]]["p_1"]  # the requested id


def test_an_absent_party_is_left_out_of_the_alignment_too(
    with_keys: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, ids = with_keys
    shutil.copytree(folder, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "run" / "parties" / "party2")
    lone = sorted(set(ids["party1"]) - set(ids["party2"]))
    asked = write_ids(tmp_path / "ids.csv", [*lone])
    words = ["--ids", asked, "--out", tmp_path / "out.csv", "--absent", "mean", "--wait", 60]
    code, output = colonnade("predict", tmp_path / "copy" / "run", *words)
    assert code == 0, output
    with (tmp_path / "out.csv").open(newline="") as lines:
        assert all(row["class"] for row in csv.DictReader(lines))


def test_numbers_of_aligned_tables_are_predicted_in_their_own_units(tmp_path: Path) -> None:
    ids, tree = write_tables(tmp_path), table_tree(task="regression")
    del tree["federation"]["classes"]
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(tree))
    code, output = colonnade("up", tmp_path / "federation.yaml", "--out", tmp_path / "run")
    assert code == 0, output
    asked = write_ids(tmp_path / "ids.csv", [*ids["server"]])
    code, output = colonnade("predict", tmp_path / "run", "--ids", asked, "--out", tmp_path / "out.csv")
    assert code == 0, output
    with (tmp_path / "server.csv").open(newline="") as lines:
        truth = {row["who"]: row["label"] for row in csv.DictReader(lines)}
    by_label: dict[str, list[float]] = {"0": [], "1": []}
    with (tmp_path / "out.csv").open(newline="") as lines:
        for row in csv.DictReader(lines):
            if row["value_1"]:
                by_label[truth[row["id"]]].append(float(row["value_1"]))
    low, high = (sum(values) / len(values) for values in by_label.values())
    assert low < 0.4 and high > 0.6


def test_of_an_unseen_word_others_read_its_party_and_not_its_text(
    with_keys: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    folder, ids = with_keys
    place, port = Path(shutil.copytree(folder, tmp_path / "copy")), free_port()
    table = place / "party1.csv"
    table.write_text(table.read_text().replace("Ulm", "Hiddenhausen"))
    tree = yaml.safe_load((place / "run" / "config.yaml").read_text())
    server = {"federation": tree["federation"], "server": {**tree["server"], "listen": f"127.0.0.1:{port}"}}
    (place / "server.yaml").write_text(yaml.safe_dump(server))
    asked = write_ids(tmp_path / "ids.csv", [*ids["server"][:60]])
    words = ["--file", place / "server.yaml", "--ids", asked, "--out", tmp_path / "out.csv", "--insecure"]
    with household(tmp_path) as members:
        members.begin("asking", "predict", place / "run", *words)
        for name, section in tree["parties"].items():
            own = {"federation": tree["federation"], "parties": {name: {**section, "connect": f"127.0.0.1:{port}"}}}
            (file := place / f"{name}.yaml").write_text(yaml.safe_dump(own))
            members.begin(name, "answer", file, "--in", place / "run" / "parties" / name, "--insecure")
        codes, texts = zip(*map(members.finish, ("asking", "party1", "party2")), strict=True)
    said, own_words, others = (" ".join(text.split()) for text in texts)
    assert codes[:2] == (3, 2)
    reason = "its table has values that were not seen in training, and its `unseen` is refuse"
    assert f"error: party1 failed: {reason}" in said and reason in others
    assert "Hiddenhausen" in own_words and "Hiddenhausen" not in said + others


def test_next_months_tables_are_named_and_training_keeps_its_own(
    with_keys: tuple[Path, dict[str, list[str]]], tmp_path: Path
) -> None:
    """New rows in another order of columns, beside a row of training whose values have changed."""
    folder, ids = with_keys
    old = next(key for key in ids["server"] if key in ids["party1"] and key in ids["party2"])
    new = [f"New {number:03}" for number in range(120)]
    for party, shift in (("party1", 0.0), ("party2", 3.0)):
        with (folder / f"{party}.csv").open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        names = [*reversed(rows[0]), "extra"]
        with (tmp_path / f"{party}.csv").open("w", newline="") as lines:
            writer = csv.DictWriter(lines, names)
            writer.writeheader()
            for key, row in zip([*new, old], rows, strict=False):
                writer.writerow({**row, "who": key, "c1": float(row["c1"]) + shift, "extra": 1})
    files = [*folder.glob("*.csv"), *(folder / "run" / "parties").rglob("tables/*"), *folder.rglob("encoder.json")]
    before = {path: path.read_bytes() for path in files}
    first = said_of(folder, write_ids(tmp_path / "old.csv", [old]), tmp_path / "first.csv")
    named = [f"--tables=party{number}={tmp_path / f'party{number}.csv'}" for number in (1, 2)]
    asked = write_ids(tmp_path / "ids.csv", [*new, old, ids["server"][0] if ids["server"][0] != old else "Nobody"])
    code, output = colonnade("predict", folder / "run", "--ids", asked, "--out", tmp_path / "out.csv", *named)
    text = " ".join(output.split())
    assert code == 0, output
    with (tmp_path / "out.csv").open(newline="") as lines:
        said = {row["id"]: row["p_1"] for row in csv.DictReader(lines) if row["class"]}
    assert set(said) == {*new, old} and said[old] != first[old]
    assert "1 id not known to every member" in text and "party1: all values are those of" in text
    assert "'extra' was no column of training" in text
    table = [line for line in output.splitlines() if "party2" in line and "shifted" in line]
    assert len(table) == 1 and " c1 " in table[0] and "\nparty1 " not in output
    (note,) = (folder / "run" / "parties" / "party2" / "batches.jsonl").read_text().splitlines()[-1:]
    assert json.loads(note)["rows"] == 121
    assert {path: path.read_bytes() for path in files} == before
    found = load(folder / "run").predict(new[:3], tables={f"party{n}": tmp_path / f"party{n}.csv" for n in (1, 2)})
    assert found["p_1"].to_pylist() == pytest.approx([float(said[key]) for key in new[:3]], rel=1e-4)


def said_of(folder: Path, asked: Path, out: Path) -> dict[str, str]:
    """Probabilities by id, of those that all members know."""
    code, output = colonnade("predict", folder / "run", "--ids", asked, "--out", out)
    assert code == 0, output
    with out.open(newline="") as lines:
        return {row["id"]: row["p_1"] for row in csv.DictReader(lines) if row["class"]}


def test_codes_of_aligned_rows_are_drawn_once_in_training_and_all_predictions(tmp_path: Path) -> None:
    """Tables change between two predictions, in rows, order and values: whoever was asked for keeps the prediction."""
    ids = write_tables(tmp_path)
    codes = {"name": "codes", "steps": 10, "drawn": 60, "lr": 10}
    private = {"mechanism": "discrete", "epsilon": 2, "delta": 1e-4, "encoder": 1}
    tree = table_tree(protocol=codes, epochs=1, privacy=private)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(tree))
    code, output = colonnade("up", tmp_path / "federation.yaml", "--out", tmp_path / "run")
    assert code == 0, output
    everybody = sorted(set(ids["party1"]) & set(ids["party2"]))
    some, all_ = write_ids(tmp_path / "some.csv", everybody[::3]), write_ids(tmp_path / "all.csv", everybody)
    first = said_of(tmp_path, some, tmp_path / "first.csv")
    assert set(first) - set(ids["server"])  # some rows have no label
    for party in ("party1", "party2"):
        table = tmp_path / f"{party}.csv"
        header, *rows = table.read_text().splitlines()
        keyed = [row.split(",", 1) for row in rows]
        others = [f"{key},{values}" for (key, _), (_, values) in zip(keyed, reversed(keyed), strict=True)]
        table.write_text("\n".join([header, *reversed(others)]) + "\n")
    second = said_of(tmp_path, all_, tmp_path / "second.csv")
    assert {key: second[key] for key in first} == first and len(second) > len(first)
    assert said_of(tmp_path, all_, tmp_path / "third.csv") == second
    for party in ("party1", "party2"):
        ledger = (tmp_path / "run" / "parties" / party / "ledger.jsonl").read_text()
        assert ledger.count('"reserved": 1') == 1
