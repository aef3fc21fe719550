"""Tables that only partly overlap, from csv to a trained model, as real processes over mutual TLS."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from common.conversation import SERVER
from common.lines import read_lines
from common.once import Once
from tests.cli.test_up import events, finish, start
from tests.tables import table_tree, write_tables

pytestmark = pytest.mark.processes


def homes(out: Path) -> dict[str, Path]:
    return {SERVER: out, **{home.name: home for home in sorted((out / "parties").iterdir())}}


def test_from_tables_with_keys_to_a_model_and_on(tmp_path: Path) -> None:
    ids, out = write_tables(tmp_path), tmp_path / "run"
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(table_tree(checkpoint={"rounds": 10})))
    process = start("up", file, "--out", out)
    output = finish(process)
    assert process.returncode == 0, output

    kept = {member: Once(home / "once") for member, home in homes(out).items()}
    people = {m: [ids[m][row] for row in once.get("alignment")["rows"].tolist()] for m, once in kept.items()}
    assert set(people[SERVER]) == set.intersection(*map(set, ids.values()))
    assert people[SERVER] == people["party1"] == people["party2"] and len(set(people[SERVER])) == len(people[SERVER])
    assert {once.number("alignment") for once in kept.values()} == {kept[SERVER].number("alignment")}
    (aligned,) = events(out, "aligned")
    assert (aligned["rows"], aligned["common"]) == (len(ids[SERVER]), len(people[SERVER]))
    # Half of the people are in either class; only rows that belong together say which.
    assert json.loads((out / "summary.json").read_text())["metrics"]["test_accuracy"] > 0.8

    for name in ("party1", "party2"):
        left = list(read_lines(homes(out)[name] / "ledger.jsonl"))
        points = [entry for entry in left if entry["kind"] == "Points"]
        assert {entry["mechanism"] for entry in points} == {"hashed keys, raised to a secret and shuffled"}
        assert sum(entry["rows"] for entry in points) == sum(map(len, ids.values()))
        assert "Person" not in (homes(out)[name] / "ledger.jsonl").read_text()

    # The run goes on with the alignment that it has, and does not without it.
    more = start("up", "--resume", out, "--set", "federation.epochs=14")
    output = finish(more)
    assert more.returncode == 0, output
    assert len(events(out, "aligned")) == 1 and kept[SERVER].number("alignment") == Once(out / "once").number(
        "alignment"
    )
    shutil.rmtree(out / "parties" / "party2" / "once")
    lost = start("up", "--resume", out, "--set", "federation.epochs=16")
    said = " ".join(finish(lost).split())
    assert lost.returncode != 0 and "party2 came without the file that says how" in said


def test_an_empty_intersection_is_said_by_everybody(tmp_path: Path) -> None:
    write_tables(tmp_path, people=30)
    table = (tmp_path / "party2.csv").read_text()
    (tmp_path / "party2.csv").write_text(table.replace("Person", "People"))
    file, out = tmp_path / "federation.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(table_tree(batch=4)))
    process = start("up", file, "--out", out)
    said = " ".join(finish(process).split())
    assert process.returncode != 0 and "Person" not in said
    logs = [said, *((out / "parties" / name / "log.txt").read_text() for name in ("party1", "party2"))]
    assert all("federation.align = psi: no key is common to all members" in words for words in logs)
