"""`colonnade ledger`: tensors that left a party, and the integrity of the record."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import SimpleNamespace

import pytest
import torch

import colonnade.common
from colonnade.cli.read.ledger import ledger as summarise
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.messaging.message import PartyMessage
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.ledger import Ledger, mark, newest
from colonnade.common.protocols.split import Embedding, Evaluation
from colonnade.common.run.json_text import sealed
from colonnade.common.run.run_folder import STAMP, PartyFolder
from colonnade.reports.records.ledgers import KINDS, describe_kind, spent
from tests.support.towers import declare_operators


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "parties" / "ada"
    folder.mkdir(parents=True)
    ledger, budget = Ledger(folder / "ledger.jsonl"), Budget(folder / "ledger.jsonl", limit=5, expected=5)
    for round in (1, 2, 3):
        budget.spend()
        ledger.charge(Embedding(round, torch.zeros(4, 250)), "server", "gaussian", 0.25 * round)
    ledger.charge(Evaluation(3, "test", 0, torch.zeros(2, 3)), "server", "none", 0.75)
    ledger.close()
    return folder


def test_it_summarises_the_releases(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    summarise(home, check=False, head=False)
    said = capfd.readouterr().out
    (row,) = [line.split("  ") for line in said.splitlines() if line.startswith("Embedding ")]
    assert [cell.strip() for cell in row if cell] == ["Embedding", "3", "12.0 kB", "12", "0", "gaussian"]
    assert (
        "in the clear" in said
        and "epsilon 0.75 at the agreed delta after the last message; 3 releases paid for" in said
    )
    assert newest(home / "ledger.jsonl") in said
    assert f"Embedding: {KINDS['Embedding']}" in said and f"Evaluation: {KINDS['Evaluation']}" in said


def test_its_epsilon_is_of_all_planned_releases_beside_a_running_count(home: Path) -> None:
    path = home / "ledger.jsonl"
    Budget(path, limit=5, expected=5, planned=1.25).spend()
    epsilon, about = spent(path)
    assert epsilon == "epsilon 1.25 at the agreed delta of all planned releases"
    assert "4 releases paid for (a running count after the last message" in about and "epsilon 0.75" in about


def test_every_kind_that_leaves_a_party_is_described_in_words() -> None:
    """Of every built-in protocol, and of what is common to them; no description is of a kind that is gone."""
    declare_operators()
    for found in walk_packages(colonnade.common.__path__, "colonnade.common."):
        if "_generated" not in found.name:
            import_module(found.name)
    kinds, left = [PartyMessage], set()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("colonnade.common.") and kind is not PartyMessage:
            left.add(kind.__name__)
    assert left == set(KINDS)
    assert all(describe_kind(kind) == KINDS[kind] != kind for kind in left) and describe_kind("Else") == ""


def test_kinds_of_a_protocol_from_elsewhere_are_described_by_its_docstrings(monkeypatch: pytest.MonkeyPatch) -> None:
    class Points(PartyMessage):
        """Places on a map.

        More about them.
        """

    contract = SimpleNamespace(kinds={"Points": Points, "Embedding": Embedding})
    monkeypatch.setattr("colonnade.reports.records.ledgers.CONTRACTS", {"maps": contract})
    assert describe_kind("Points", "maps") == "Places on a map" and describe_kind("Points", "split") == KINDS["Points"]
    assert describe_kind("Embedding", "maps") == KINDS["Embedding"]


def test_an_epsilon_is_named_with_its_delta_and_its_party(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ledger = Ledger(home / "ledger.jsonl")
    ledger.charge(Embedding(4, torch.zeros(4, 250)), "server", "gaussian C=1 sigma=4 delta=1e-05 replace", 1.25)
    ledger.close()
    summarise(home, check=False, head=False)
    said = capfd.readouterr().out
    assert "epsilon 1.25 at delta 1e-05 after" in said and "this party's own" in said


def test_it_verifies_and_names_the_first_broken_line(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = home / "ledger.jsonl"
    count = len(path.read_text().splitlines())
    summarise(path, check=True, head=False)
    assert f"{count} lines, and every hash fits" in capfd.readouterr().out
    path.write_text(path.read_text().replace('"rows": 2', '"rows": 1'))
    with pytest.raises(InputError, match=f"line {count}: its hash does not fit"):
        summarise(home, check=True, head=False)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("left", [0, 2])
def test_a_ledger_that_is_shorter_than_its_pin_is_refused(home: Path, check: bool, left: int) -> None:
    path, pin = home / "ledger.jsonl", PartyFolder(home).pinned
    pin.write_bytes(sealed({"run": "1", "ledger": mark(path), **STAMP}))
    whole = path.read_bytes()
    summarise(home, check=check, head=True)
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[:left]))
    with pytest.raises(CheckpointError, match=rf"{path} has \d+ bytes, and had {len(whole)}"):
        summarise(path, check=check, head=False)
    path.write_bytes(whole)
    pin.write_bytes(pin.read_bytes().replace(b'"ledger": "', b'"ledger": "1'))
    with pytest.raises(CheckpointError, match=f"{pin} is torn or was altered"):
        summarise(home, check=check, head=False)


def test_a_line_truncated_by_a_crash_is_reported(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = home / "ledger.jsonl"
    count = len(path.read_text().splitlines())
    with path.open("a") as file:
        file.write('{"round": 4, "kind": "Emb')
    summarise(home, check=True, head=False)
    said = capfd.readouterr().out
    assert f"{count} lines, and every hash fits" in said
    assert f"1 line cut short, as by a crash, and passed over: number {count + 1}" in said


def test_the_head_alone_can_be_noted_elsewhere(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    summarise(home, check=False, head=True)
    assert capfd.readouterr().out.strip() == newest(home / "ledger.jsonl")


def test_a_missing_ledger_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no ledger"):
        summarise(tmp_path, check=False, head=False)
