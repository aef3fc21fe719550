"""What a party notes of the rows that it scores."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import torch

from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.scored_rows import PERIOD, ScoredRows
from tests.common.data.columns.test_distribution import HOW, table

TRAINING = table([float(place % 40) for place in range(400)], ["Ulm", "Bonn"] * 200)
NEW = table([float(place % 40) + 30 for place in range(80)], [*["Ulm", "Bonn"] * 35, *["Ham<b>"] * 8, None, None])


class Noted:
    """A member that scores rows."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said, self.warned, self.now = folder, list[str](), list[str](), 0.0
        self.rows = ScoredRows(folder, lambda _record, said: self.said.append(said), self.warned.append, self.clock)

    def clock(self) -> float:
        return self.now

    @property
    def records(self) -> list[dict[str, Any]]:
        path = self.folder / "batches.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def trained(folder: Path) -> Noted:
    EncoderFile(folder, begun=False).get(HOW, TRAINING, torch.arange(400))
    return Noted(folder)


def test_a_batch_is_noted_at_its_end_with_counts_and_shifts(tmp_path: Path) -> None:
    member = trained(tmp_path)
    member.rows.take(NEW)
    for rows in (torch.arange(10), *torch.arange(10, 80).split(1)):
        member.rows.add(rows)
    assert not member.records
    member.rows.end()
    member.rows.end()
    (record,) = member.records
    number, word = record["columns"]
    assert record["rows"] == 80 and (word["unseen"], word["missing"]) == (8, 2) and number["missing"] == 0
    assert number["level"] == "shifted" and number["outside"] > 40 and number["psi"] > number["chance"] > 0.25
    assert stat.S_IMODE((tmp_path / "batches.jsonl").stat().st_mode) == 0o600
    (said,) = member.said
    assert said.startswith("80 rows scored: 'c0' has shifted (PSI ") and "8 words that training had not in 'c1'" in said
    assert "Ham<b>" not in said + json.dumps(record)  # no cell


def test_another_session_and_an_hour_begin_another_batch(tmp_path: Path) -> None:
    member = trained(tmp_path)
    member.rows.take(NEW)
    member.rows.add(torch.arange(3))
    member.rows.take(TRAINING)
    member.rows.add(torch.arange(400))
    member.now = PERIOD
    member.rows.add(torch.arange(5))
    member.rows.end()
    assert [record["rows"] for record in member.records] == [3, 400, 5]
    assert "no column has moved" in member.said[1]


def test_runs_without_a_distribution_say_so(tmp_path: Path) -> None:
    member = trained(tmp_path)
    (tmp_path / "distribution.json").unlink()
    member.rows.take(NEW)
    member.rows.add(torch.arange(80))
    member.rows.end()
    (record,) = member.records
    assert record["psi_unknown"] and [one["psi"] for one in record["columns"]] == [None, None]
    assert "outside" not in record["columns"][0] and record["columns"][1]["unseen"] == 8
    assert "PSI is unknown" in member.said[0] and "moved" not in member.said[0]


def test_a_disk_that_refuses_is_a_warning(tmp_path: Path) -> None:
    member = trained(tmp_path)
    (tmp_path / "batches.jsonl").mkdir()
    member.rows.take(NEW)
    member.rows.add(torch.arange(80))
    member.rows.end()
    assert "not noted" in member.warned[0] and member.said
