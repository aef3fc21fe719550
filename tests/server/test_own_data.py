"""Errors in the server's own data stay at the server."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.crypto.sealing import Session
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import DataError, declared
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.common.run.start_secret import PUBLIC
from colonnade.server.alignment.rows import ServerRows
from colonnade.server.privacy import digest_of, hold_labels, refuse_other_labels
from tests.support.federation import config
from tests.support.in_memory import members


def test_a_table_that_cannot_be_used_is_not_quoted_to_the_parties() -> None:
    def use(_rows: torch.Tensor) -> None:
        raise DataError("column 'job': a word that no training row has, as 'HIV clinic'")

    record = AlignmentRecord(RunCache(), RowKeys.of(["alice", "bob"], KeysConfig(), SERVER), SERVER)
    record.keep("number", torch.tensor([1, 0]))
    rows = ServerRows(config({"name": "split"}).federation, record, Telemetry(), {}, use)
    with pytest.raises(DataError, match="HIV clinic") as failed:
        run_virtual(rows.align(Cohort({}, Mailbox()), Session()))
    said = " ".join(declared(failed.value))
    assert "HIV" not in said and "log" in said


def test_labels_in_another_order_are_refused(tmp_path: Path) -> None:
    labels = LabelColumn(torch.tensor([0, 1, 1]), ("no", "yes"), ids=("x", "y", "z"))
    hold_labels(RunCache(tmp_path), digest_of(labels))
    refuse_other_labels(RunCache(tmp_path), labels)
    for other in (labels.rows(torch.tensor([0, 2, 1])), labels.rows(torch.tensor([0, 1]))):
        with pytest.raises(DataError, match=r"server\.labels has changed"):
            refuse_other_labels(RunCache(tmp_path), other)


def test_a_run_that_held_none_goes_on(tmp_path: Path) -> None:
    refuse_other_labels(RunCache(tmp_path), LabelColumn(torch.tensor([0, 1]), ("no", "yes")))


def test_a_run_is_not_resumed_with_other_labels(tmp_path: Path) -> None:
    async def resumed() -> BaseException | None:
        with members(tmp_path) as there:
            run = RunFolder(there.home(SERVER))
            run.make()
            run.record("1" * 16, there.config.federation.id, PUBLIC)
            hold_labels(RunCache(run.run_cache), "another digest")
            before = there.files(SERVER)
            error = await there.error(there.start(SERVER))
            assert there.files(SERVER) == before and not run.events.exists()
            return error

    error = run_virtual(resumed())
    assert isinstance(error, DataError) and "server.labels has changed" in str(error)
