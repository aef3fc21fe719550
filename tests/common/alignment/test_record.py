"""A member's record of its alignment, and the server's comparison of the parties' records."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.store import AlignmentRecord, kept_rows
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.rows import ServerRows
from tests.support.alignment import federation

ROWS = torch.tensor([2, 0])


def keys(*values: str) -> RowKeys:
    return RowKeys(tuple(value.encode() for value in values))


def test_the_record_survives_a_restart(tmp_path: Path) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1").keep("first", ROWS)
    record = AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1")
    assert record.number == "first" and torch.equal(record.rows("first"), ROWS)
    assert torch.equal(kept_rows(RunCache(tmp_path), "party1"), ROWS)


def test_no_key_and_no_plain_hash_of_a_key_is_on_the_disk(tmp_path: Path) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a secret key", "b", "c"), "party1").keep("first", ROWS)
    assert all(b"a secret key" not in file.read_bytes() for file in tmp_path.iterdir())


@pytest.mark.parametrize("changed", [("a", "c", "b"), ("a", "b"), ("a", "b", "C")])
def test_a_table_that_has_changed_is_refused(tmp_path: Path, changed: tuple[str, ...]) -> None:
    AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1").keep("first", ROWS)
    with pytest.raises(DataError, match="party1: the keys of its table, or their order, have changed"):
        AlignmentRecord(RunCache(tmp_path), keys(*changed), "party1").rows("first")


def test_another_alignment_or_none_is_refused(tmp_path: Path) -> None:
    record = AlignmentRecord(RunCache(tmp_path), keys("a", "b", "c"), "party1")
    with pytest.raises(CheckpointError, match="goes on with the alignment second, and here is none"):
        record.rows("second")
    with pytest.raises(CheckpointError, match="party1: there is no alignment"):
        kept_rows(RunCache(tmp_path), "party1")
    record.keep("first", ROWS)
    with pytest.raises(CheckpointError, match="goes on with the alignment second, and here is first"):
        record.rows("second")


def test_keys_that_run_into_each_other_are_other_keys() -> None:
    assert keys("ab", "c").digest != keys("a", "bc").digest
    assert keys("b", "a").as_one == keys("a", "b").as_one != keys("a", "c").as_one


def test_the_server_goes_on_only_with_parties_that_hold_its_alignment() -> None:
    record = AlignmentRecord(RunCache(), keys("a", "b", "c"), SERVER)
    rows = ServerRows(federation(2), record, Telemetry(), {}, lambda _rows: None)
    assert rows.agreed({"party1": "left over", "party2": ""}) == ""
    record.keep("first", ROWS)
    assert rows.agreed({"party1": "first", "party2": "first"}) == "first"
    with pytest.raises(CheckpointError, match="party2 came without the file that says how"):
        rows.agreed({"party1": "first", "party2": "other"})
