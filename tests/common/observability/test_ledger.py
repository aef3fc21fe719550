"""The ledger over crashes and rollbacks: no possible release is forgotten."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.aggregation.messages import KeyOffer
from colonnade.common.conversation.parcels import Failure, Farewell, Hello, Saved, Statement
from colonnade.common.errors import EnvironmentFault
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.privacy.accounting.ledger import Ledger, verify
from colonnade.common.protocols.fedvs import Answer, Prepared, Shares
from colonnade.common.protocols.split import Embedding, Evaluation
from colonnade.common.run.json_text import open_to_append, read_lines
from colonnade.common.run.run_folder import PartyFolder
from colonnade.reports.records.ledgers import read_books_of

ROOT = Path(__file__).parents[3]


def embedding(round: int) -> Embedding:
    return Embedding(round, torch.zeros(2, 3))


def evaluation(round: int, part: str, block: int) -> Evaluation:
    return Evaluation(round, part, block, torch.zeros(2, 3))


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def charge(path: Path, *messages: Message, after: int = 0) -> None:
    ledger = Ledger(path, after)
    for message in messages:
        ledger.charge(message, "server", "none", None)
    ledger.close()


def test_repeated_releases_after_a_rollback_are_marked_and_first_ones_are_not(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    charge(path, embedding(1), embedding(2), embedding(3), evaluation(3, "validation", 0))
    charge(path, embedding(3), evaluation(3, "validation", 0), evaluation(3, "validation", 1), embedding(4), after=2)
    repeats = [(entry["kind"], entry["round"], entry.get("repeat", False)) for entry in entries(path)]
    assert repeats[:4] == [("Embedding", 1, False), ("Embedding", 2, False), ("Embedding", 3, False),
                           ("Evaluation", 3, False)]  # fmt: skip
    assert repeats[4:] == [("Embedding", 3, True), ("Evaluation", 3, True), ("Evaluation", 3, False),
                           ("Embedding", 4, False)]  # fmt: skip


def test_an_entry_describes_its_release(tmp_path: Path) -> None:
    charge(tmp_path / "ledger.jsonl", evaluation(3, "test", 2))
    (entry,) = entries(tmp_path / "ledger.jsonl")
    assert entry["about"] == {"part": "test", "block": 2}
    assert entry["fields"] == {"h": ["float32", 2, 3]} and entry["bytes"] == 24


@pytest.mark.parametrize(
    ("message", "rows"),
    [
        (Embedding(1, torch.zeros(5, 3)), 5),
        (Answer(1, 0, 0, "", torch.zeros(4, 9, dtype=torch.int32)), 4),
        (KeyOffer(0, *(torch.zeros(size, dtype=torch.uint8) for size in (32, 700, 70, 300))), 0),
        (Shares(1, 0, torch.zeros(6, 40, dtype=torch.uint8)), 0),
        (Prepared(0, "", 3), 0),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_rows_are_counted_only_where_a_dimension_is_called_so(tmp_path: Path, message: Message, rows: int) -> None:
    charge(tmp_path / "ledger.jsonl", message)
    (entry,) = entries(tmp_path / "ledger.jsonl")
    assert (entry["kind"], entry["rows"]) == (type(message).__name__, rows)


def test_a_line_that_a_crash_cut_short_is_closed_and_the_rest_still_counts(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    charge(path, embedding(1))
    path.write_text(path.read_text() + '{"round": 2, "kind": "Emb')
    charge(path, embedding(1), embedding(2))
    lines = path.read_text().splitlines()
    assert len(lines) == 4 and lines[1] == '{"round": 2, "kind": "Emb'
    assert json.loads(lines[2])["repeat"] is True and "repeat" not in json.loads(lines[3])
    assert [entry["round"] for entry in read_lines(path)] == [1, 1, 2]


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("common.privacy.accounting.ledger", "common.run.json_text"):
        monkeypatch.setattr(f"colonnade.{module}.open_own", lambda _path, flags, _mode: os.open("/dev/full", flags))


@pytest.mark.usefixtures("full_disk")
def test_nothing_leaves_that_the_disk_does_not_take(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(EnvironmentFault, match="cannot be written: No space left on device; nothing leaves without it"):
        ledger.charge(embedding(1), "server", "none", None)
    ledger.close()


@pytest.mark.usefixtures("full_disk")
def test_events_that_the_disk_does_not_take_end_the_run_in_words(tmp_path: Path) -> None:
    heard: list[dict[str, Any]] = []
    telemetry = Telemetry(tmp_path / "events.jsonl", heard.append)
    with pytest.raises(EnvironmentFault, match="No space left on device"):
        telemetry.event("round", round=1)
    telemetry.event("end")
    assert [event["kind"] for event in heard] == ["end"]
    telemetry.close()


def test_lines_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    for text in ('{"a": 1}\n', '{"a": 2}\n'):
        with open_to_append(path) as file:
            file.write(text)
    path.write_bytes(path.read_bytes() + b'[1]\n\xff\n{"a": 3}')
    assert [entry["a"] for entry in read_lines(path)] == [1, 2, 3]
    assert list(read_lines(tmp_path / "none")) == []


# Control messages.


def test_control_messages_have_lines_that_readers_of_messages_pass_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    ledger.note(Hello("bank", "demo", "0.3.0", config={"batch": "ab"}, rows=1797), "server")
    ledger.charge(embedding(1), "server", "none", None)
    ledger.note(Saved(4), "server")
    ledger.note(Statement(body=b"x" * 500), "server")
    ledger.note(Failure("", "r" * 500), "server")
    ledger.note(Farewell(), "server")
    ledger.close()
    lines = list(read_lines(path))
    assert [line.get("control") for line in lines] == ["Hello", None, "Saved", "Statement", "Failure", "Farewell"]
    assert lines[0]["about"]["rows"] == 1797 and lines[0]["about"]["config"] == {"size": 1}
    assert lines[3]["about"] == {"body": {"size": 500}} and lines[2]["about"] == {"round": 4}
    assert verify(path).lines == 6 and list(read_books_of(path)) == ["Embedding"]
    assert PartyFolder(tmp_path).has_sent and Ledger(path, after=0)._left


def test_joining_alone_begins_no_run(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.note(Hello("bank", "demo", "0.3.0", rows=3), "server")
    ledger.close()
    assert not PartyFolder(tmp_path).begun


@pytest.mark.usefixtures("full_disk")
def test_only_the_notice_of_a_failure_leaves_without_a_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.note(Failure("", "the disk is full"), "server")
    with pytest.raises(EnvironmentFault, match="nothing leaves without it"):
        ledger.note(Farewell(), "server")


def test_a_party_has_one_place_that_sends() -> None:
    """Whatever else would post to the connection would leave without a line."""
    found = {
        path.relative_to(ROOT).as_posix(): re.findall(r"_connection\.post\(|\bconnection\.post\(", path.read_text())
        for path in (ROOT / "client").rglob("*.py")
    }
    assert {path: len(calls) for path, calls in found.items() if calls} == {"client/dialling/membership.py": 1}
