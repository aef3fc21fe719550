"""Alignments from run to run: simulated, in processes, checked, resumed, and asked for predictions."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import colonnade as library
from colonnade.common.alignment.place import NAME
from colonnade.common.run.json_text import read_lines
from tests.cli.run.test_predict import write_ids
from tests.cli.run.test_up import events
from tests.support.household import colonnade
from tests.support.tables import table_tree, write_tables

PARTIES = ("party1", "party2")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, list[str]]]]:
    """A simulated run over tables that partly overlap, in a folder of runs, and the keys of each."""
    folder = tmp_path_factory.mktemp("kept")
    ids = write_tables(folder)
    (folder / "federation.yaml").write_text(yaml.safe_dump(table_tree(epochs=1)))
    code, output = colonnade("simulate", folder / "federation.yaml", "--out", folder / "runs" / "first")
    assert code == 0, output
    yield folder, ids


def again(runs: Path, to: Path, *words: Any, command: str = "simulate") -> tuple[Path, str]:
    """Another run beside a copy of the first. Returns its folder and output."""
    if not to.exists():
        shutil.copytree(runs, to)
    out = to / "runs" / f"{command}{len(list((to / 'runs').iterdir()))}"
    code, output = colonnade(command, to / "federation.yaml", "--out", out, *words)
    assert code == 0, output
    return out, output


def reused(run: Path) -> int:
    return int(events(run, "aligned")[0]["reused"])


def ledger(run: Path, party: str) -> list[dict[str, Any]]:
    return list(read_lines(run / "parties" / party / "ledger.jsonl"))


def test_the_next_run_uses_it_and_the_ledger_says_so(runs: tuple[Path, Any], tmp_path: Path) -> None:
    first = runs[0] / "runs" / "first"
    assert reused(first) == 0 and "Points" in {entry.get("kind") for entry in ledger(first, "party1")}
    second, _ = again(runs[0], tmp_path / "copy")
    assert reused(second) == events(first, "aligned")[0]["common"] > 0
    for party in PARTIES:
        entries = ledger(second, party)
        assert "Points" not in {entry.get("kind") for entry in entries}
        (entry,) = [entry for entry in entries if entry.get("kind") == "Reused"]
        assert entry["bytes"] == 0 and entry["about"]["rows"] == reused(second)


def test_it_is_beside_the_runs_a_folder_for_every_member(runs: tuple[Path, Any]) -> None:
    place = runs[0] / "runs" / NAME
    assert sorted(path.name for path in place.iterdir()) == ["party1", "party2", "server"]
    assert place.stat().st_mode & 0o077 == 0


def test_a_run_that_used_it_is_resumed(runs: tuple[Path, Any], tmp_path: Path) -> None:
    second, _ = again(runs[0], tmp_path / "copy")
    code, output = colonnade("simulate", "--resume", second, "--set", "federation.epochs=2")
    assert code == 0, output
    assert all(sum(entry.get("kind") == "Reused" for entry in ledger(second, party)) == 1 for party in PARTIES)


def test_one_member_without_it_is_named(runs: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "runs" / NAME / "party2")
    second, _ = again(runs[0], tmp_path / "copy")
    assert reused(second) == 0
    (warning,) = events(second, "warning")
    assert warning["reason"].startswith("rows are aligned anew: party2 did not keep the alignment")
    assert reused(again(runs[0], tmp_path / "copy")[0]) > 0


@pytest.mark.parametrize(
    "setting",
    ["server.alignments.days=0", "parties.party1.alignments.days=0", "parties.party2.policy.reuse_alignment=false"],
)
def test_any_member_can_switch_it_off(runs: tuple[Path, Any], tmp_path: Path, setting: str) -> None:
    second, _ = again(runs[0], tmp_path / "copy", "--set", setting)
    assert reused(second) == 0


def test_python_uses_it_too(runs: tuple[Path, Any], tmp_path: Path) -> None:
    shutil.copytree(runs[0], tmp_path / "copy")
    run = library.simulate(tmp_path / "copy" / "federation.yaml", out=tmp_path / "copy" / "runs" / "python")
    assert reused(run.folder) > 0


def test_a_folder_can_be_named(runs: tuple[Path, Any], tmp_path: Path) -> None:
    kept = tmp_path / "volume"
    words = [f"{section}.alignments.folder={kept}" for section in ("server", "parties.party1", "parties.party2")]
    sets = [word for setting in words for word in ("--set", setting)]
    assert reused(again(runs[0], tmp_path / "copy", *sets)[0]) == 0
    assert reused(again(runs[0], tmp_path / "copy", *sets)[0]) > 0
    assert sorted(path.name for path in kept.iterdir()) == ["party1", "party2", "server"]


def alike(one: dict[str, dict[str, str]], other: dict[str, dict[str, str]]) -> bool:
    """The same rows and classes; kernels may round probabilities of another batch otherwise in the last digit."""
    near = all(abs(float(one[key]["p_1"]) - float(row["p_1"])) < 3e-6 for key, row in other.items())
    return near and {key: row["class"] for key, row in one.items()} == {key: row["class"] for key, row in other.items()}


@pytest.mark.processes
def test_processes_use_it_and_predict_from_it(runs: tuple[Path, dict[str, list[str]]], tmp_path: Path) -> None:
    ids = runs[1]
    out, output = again(runs[0], tmp_path / "copy", command="up")
    assert reused(out) > 0 and "by a kept alignment" in " ".join(output.split())
    common = sorted(set.intersection(*map(set, ids.values())))
    new = sorted(set(ids["party1"]) & set(ids["party2"]) - set(ids["server"]))
    lone = sorted(set(ids["party1"]) - set(ids["party2"]))[:2]

    def ask(asked: list[str]) -> tuple[dict[str, dict[str, str]], set[str]]:
        before = len(ledger(out, "party1"))
        file = write_ids(tmp_path / "ids.csv", asked)
        code, said = colonnade("predict", out, "--ids", file, "--out", tmp_path / "out.csv")
        assert code == 0, said
        with (tmp_path / "out.csv").open(newline="") as lines:
            found = {row["id"]: row for row in csv.DictReader(lines)}
        return found, {entry.get("kind") for entry in ledger(out, "party1")[before:]}

    inside, kinds = ask(common[:9])
    assert all(row["class"] for row in inside.values()) and "Reused" in kinds and "Points" not in kinds
    both, kinds = ask([*new, *common[:9], *lone])
    assert {"Reused", "Points"} <= kinds
    assert all(both[key]["class"] for key in new) and not any(both[key]["class"] for key in lone)
    assert alike({key: both[key] for key in common[:9]}, inside)
    shutil.rmtree(tmp_path / "copy" / "runs" / NAME)  # the run has its own record
    assert alike(ask(common[:9])[0], inside)
    tree = yaml.safe_load((out / "config.yaml").read_text())
    tree["parties"]["party1"]["policy"] = {"reuse_alignment": False}
    (out / "config.yaml").write_text(yaml.safe_dump(tree))
    anew, kinds = ask(common[:9])
    assert alike(anew, inside) and "Points" in kinds and "Reused" not in kinds


@pytest.mark.parametrize(("command", "checks"), [("up", "proofs"), ("simulate", "planted")])
def test_a_checked_alignment_finds_the_common_rows_and_is_used_again(tmp_path: Path, command: str, checks: str) -> None:
    if checks == "proofs":
        pytest.importorskip("coincurve")
    ids = write_tables(tmp_path)
    (tmp_path / "federation.yaml").write_text(yaml.safe_dump(table_tree(epochs=1, align_checks=checks)))
    common, reused = set.intersection(*map(set, ids.values())), []
    for out in (tmp_path / "runs" / "first", tmp_path / "runs" / "second"):
        code, output = colonnade(command, tmp_path / "federation.yaml", "--out", out)
        assert code == 0, output
        (aligned,) = [event for event in events(out, "aligned") if event.get("party", "server") == "server"][:1]
        assert aligned["common"] == len(common) > 0
        reused.append(aligned["reused"])
    assert reused == [0, len(common)]
