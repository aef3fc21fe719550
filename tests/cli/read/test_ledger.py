"""`colonnade ledger`: tensors that left a party, and the integrity of the record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.cli.read.ledger import ledger as summarise
from colonnade.common.errors import InputError
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.chain import newest
from colonnade.common.privacy.accounting.ledger import Ledger
from colonnade.common.protocols.split import Embedding, Evaluation


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
    (row,) = [line.split("│")[1:-1] for line in said.splitlines() if "Embedding" in line]
    assert [cell.strip() for cell in row] == ["Embedding", "3", "12.0 kB", "12", "0", "gaussian"]
    assert (
        "in the clear" in said
        and "epsilon 0.75 at the agreed delta after the last message; 3 releases paid for" in said
    )
    assert newest(home / "ledger.jsonl") in said


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
