"""Tables that only partly overlap, from csv to a trained model, over mutual TLS."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from colonnade.cli.checks.check import check
from colonnade.cli.data.deal import DealTerms, deal
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import STAMP
from colonnade.reports.explanation.trained import open_run
from colonnade.simulation.contexts import server_context
from colonnade.simulation.federation import Outcome, Simulation
from colonnade_lab.attacks.run import open_run as open_attacked
from tests.cli.run.test_up import events, finish, processes_of, start, wait_for_round
from tests.support.household import colonnade
from tests.support.tables import table_tree, write_tables

pytestmark = pytest.mark.slow


def homes(out: Path) -> dict[str, Path]:
    return {SERVER: out, **{home.name: home for home in sorted((out / "parties").iterdir())}}


def test_from_tables_with_keys_to_a_model_and_on(tmp_path: Path) -> None:
    ids, out = write_tables(tmp_path), tmp_path / "run"
    file = tmp_path / "federation.yaml"
    file.write_text(yaml.safe_dump(table_tree(checkpoint={"rounds": 10})))
    code, output = colonnade("up", file, "--out", out)
    assert code == 0, output

    kept = {member: RunCache(home / "once") for member, home in homes(out).items()}
    persons = {m: [ids[m][row] for row in run_cache.get("alignment")["rows"].tolist()] for m, run_cache in kept.items()}
    assert set(persons[SERVER]) == set.intersection(*map(set, ids.values()))
    assert persons[SERVER] == persons["party1"] == persons["party2"] and len(set(persons[SERVER])) == len(
        persons[SERVER]
    )
    assert {run_cache.number("alignment") for run_cache in kept.values()} == {kept[SERVER].number("alignment")}
    (aligned,) = events(out, "aligned")
    assert (aligned["rows"], aligned["common"]) == (len(ids[SERVER]), len(persons[SERVER]))
    # Half of the rows are in either class; only rows that belong together determine it.
    assert json.loads((out / "summary.json").read_text())["metrics"]["test_accuracy"] > 0.8

    for name in ("party1", "party2"):
        left = list(read_lines(homes(out)[name] / "ledger.jsonl"))
        points = [entry for entry in left if entry.get("kind") == "Points"]
        assert {entry["mechanism"] for entry in points} == {"hashed keys, raised to a secret and shuffled"}
        assert sum(entry["rows"] for entry in points) == sum(map(len, ids.values()))
        assert "Person" not in (homes(out)[name] / "ledger.jsonl").read_text()

    trained = open_run(out)
    assert len(trained.server.labels) == len(persons[SERVER])

    # The run goes on with the alignment that it has.
    code, output = colonnade("up", "--resume", out, "--set", "federation.epochs=13")
    assert code == 0, output
    assert len(events(out, "aligned")) == 1 and kept[SERVER].number("alignment") == RunCache(out / "once").number(
        "alignment"
    )


@pytest.mark.processes
def test_a_party_that_dies_while_rows_are_aligned_comes_back_and_they_are_aligned_anew(tmp_path: Path) -> None:
    ids, out = write_tables(tmp_path), tmp_path / "run"
    process = start("up", write(tmp_path, epochs=0, rounds=3), "--out", out, "--chaos", "party1: delay=500ms")
    wait_for_round(out, 1, process, "aligning")
    processes_of(process)["party2"].kill()
    output = finish(process)
    assert process.returncode == 0, output
    assert len(events(out, "rollback")) == len(events(out, "aligned")) == 1
    rows = {member: RunCache(home / "once").get("alignment")["rows"].tolist() for member, home in homes(out).items()}
    persons = {member: [ids[member][row] for row in own] for member, own in rows.items()}
    assert persons[SERVER] == persons["party1"] == persons["party2"]
    assert set(persons[SERVER]) == set.intersection(*map(set, ids.values()))


def test_an_empty_intersection_is_reported_by_all_members(tmp_path: Path) -> None:
    write_tables(tmp_path, persons=30)
    table = (tmp_path / "party2.csv").read_text()
    (tmp_path / "party2.csv").write_text(table.replace("Person", "RowIndex"))
    file, out = tmp_path / "federation.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(table_tree(batch=4)))
    code, said = colonnade("up", file, "--out", out)
    said = " ".join(said.split())
    assert code != 0 and "Person" not in said
    assert "federation.align = psi: no key is common to all members" in said


def write(folder: Path, **federation: object) -> Path:
    (file := folder / "federation.yaml").write_text(yaml.safe_dump(table_tree(**federation)))
    return file


def simulated(folder: Path, **federation: object) -> Outcome:
    return Simulation(parse(table_tree(keys={"seeded": True}, **federation)), folder).run()


def test_a_simulated_run_aligns_too_and_learns_from_matching_rows(tmp_path: Path) -> None:
    ids = write_tables(tmp_path)
    one, again = simulated(tmp_path), simulated(tmp_path)
    common = len(set.intersection(*map(set, ids.values())))
    assert len(one.server.labels) == one.clients["party1"].features.shape[0] == common
    assert one.server.metrics == again.server.metrics and one.server.metrics["test_accuracy"] > 0.8


def test_spaces_around_keys_count_if_configured(tmp_path: Path) -> None:
    ids = write_tables(tmp_path, persons=40)
    table = (tmp_path / "party1.csv").read_text()
    (tmp_path / "party1.csv").write_text(table.replace("Person", " Person"))
    how = {"batch": 4, "epochs": 1}
    common = len(set.intersection(*map(set, ids.values())))
    found = Simulation(parse(table_tree(keys={"seeded": True}, **how)), tmp_path).run()
    assert len(found.server.labels) == common
    with pytest.raises(DataError, match="no key is common to all members"):
        Simulation(parse(table_tree(keys={"seeded": True, "trim": False}, **how)), tmp_path).run()


def test_fewer_common_keys_than_half_of_the_smallest_table_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = write_tables(tmp_path, persons=60)
    rows = (tmp_path / "party1.csv").read_text().splitlines(keepends=True)
    spoilt = len(rows) * 3 // 4  # as in last month's export
    (tmp_path / "party1.csv").write_text(
        "".join(rows[:1]) + "".join(f"Old{row}" for row in rows[1:spoilt]) + "".join(rows[spoilt:])
    )
    config = parse(table_tree(keys={"seeded": True}, batch=4, epochs=1))
    common = set(ids[SERVER]) & set(ids["party1"][spoilt - 1 :]) & set(ids["party2"])
    said = f"only {len(common)} keys are common to all, and the smallest table has {min(map(len, ids.values()))}"
    told: list[Event] = []
    Simulation(config, tmp_path, telemetry=Telemetry(None, told.append)).run()
    assert any(event["kind"] == "warning" and str(event["reason"]).startswith(said) for event in told)
    check(write(tmp_path, batch=4, epochs=1), ())
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_simulated_empty_intersection_is_an_error_and_no_hang(tmp_path: Path) -> None:
    write_tables(tmp_path, persons=20)
    table = (tmp_path / "party1.csv").read_text()
    (tmp_path / "party1.csv").write_text(table.replace("Person", "RowIndex"))
    with pytest.raises(DataError, match="no key is common to all members"):
        simulated(tmp_path, batch=8)


def test_check_finds_wrong_keys_before_anything_starts(tmp_path: Path) -> None:
    write_tables(tmp_path, persons=60)
    check(write(tmp_path), ())
    with pytest.raises(DataError, match="party2: its data have no keys"):
        check(tmp_path / "federation.yaml", ("parties.party2.data.id=null", "parties.party2.data.drop=[who]"))


def leave_run(folder: Path) -> None:
    (folder / "config.yaml").write_text(yaml.safe_dump(table_tree()))
    (folder / "summary.json").write_text(json.dumps({"protocol": "split"}))
    (folder / "simulated.json").write_text(json.dumps({"base": str(folder), **STAMP}))


def test_options_that_conflict_with_keys_are_refused(tmp_path: Path) -> None:
    write_tables(tmp_path, persons=60)
    terms = DealTerms("127.0.0.1:7000", 30)
    with pytest.raises(ConfigError, match=r"federation\.align = psi: dealing one configuration out needs"):
        deal(write(tmp_path), (), tmp_path / "dealt", terms)
    with pytest.raises(ConfigError, match=r"federation\.align = psi: a look at a run needs"):
        server_context(parse(table_tree()), tmp_path, Telemetry())
    leave_run(tmp_path)
    with pytest.raises(ConfigError, match=r"federation\.align = psi: this attack needs"):
        open_attacked(tmp_path)
    with pytest.raises(ConfigError, match=r"federation\.rows\.test = official with federation\.align = psi"):
        parse(table_tree(rows={"test": "official"}))
