"""A server that gives one party another beginning: other aligned rows, another sharing, or two messages in a round.

Bounds: blinded sums (server); FedVS's shares (server); transcripts (server).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.alignment.rows import PartyRows
from colonnade.common.aggregation.subject import PREDICTION, TRAINING, rows_known, subject
from colonnade.common.alignment.keys import digest_in_order
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.conversation.parcels import Item
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.data.columns.features import Features
from colonnade.common.errors import ContractError
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.fedvs import Preparation
from colonnade.common.protocols.split_avg import AverageGradient
from tests.adversaries.server.test_split_views import AVERAGED, PROTOCOLS, ROUNDS, VICTIM, at
from tests.support.asked import Asked, asking
from tests.support.federation import config, federate
from tests.support.meeting import SESSION, Meeting
from tests.support.tables import table_tree, write_tables

# Rows.


def test_a_party_with_other_rows_is_named_before_anything_is_masked() -> None:
    with pytest.raises(TranscriptError) as found:
        Meeting(sessions={"bob": replace(SESSION, rows=rows_known(TRAINING, 9, 0))}).run()
    assert (
        "bob" in str(found.value)
        and "have the same rows as" in str(found.value)
        and found.value.part == "rows"
        and "align again" in found.value.hint
    )


def test_what_is_known_of_rows_differs_with_all_that_selects_them() -> None:
    keys = [digest_in_order(ids, KeysConfig(case="fold")) for ids in (("a", "b"), ("b", "a"), ("a", "b", "c"), ("a",))]
    known = [rows_known(TRAINING, 2, 0, each) for each in keys]
    known += [rows_known(PREDICTION, 2, 0, keys[0]), rows_known(TRAINING, 3, 0), rows_known(TRAINING, 2, 1)]
    assert len(set(known)) == len(known)
    assert digest_in_order(("A", "B "), KeysConfig(case="fold")) == keys[0]  # keys as members compare them


def test_a_subject_differs_with_all_that_selects_values() -> None:
    rows = torch.tensor([3, 1, 2])
    found = [
        subject(TRAINING, rows), subject(PREDICTION, rows), subject(TRAINING, rows.flip(0)),
        subject(TRAINING, rows[:2]),
        subject(TRAINING, rows, 1), subject(TRAINING, rows, 0, 1), subject(TRAINING, rows, "1"),
        subject(TRAINING, rows, before=b"1"), subject(TRAINING, torch.tensor([3, 1, 2, 0])),
    ]  # fmt: skip
    assert len(set(found)) == len(found) and found[0] == subject(TRAINING, rows.to(torch.int32))


@pytest.fixture(scope="module")
def aligned(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    folder = tmp_path_factory.mktemp("aligned")
    return _aligned(folder)


def _aligned(folder: Path) -> Asked:
    write_tables(folder, 3, persons=60)
    protocol = {"name": "split_avg", "aggregate": "blinded", "embedding": 3}
    tree = table_tree(
        3, protocol=protocol, rounds=2, epochs=0, batch=8, transcript={"every": 2},
        timeouts={"answer": 20, "away": 20}, keys={"case": "fold"},
    )  # fmt: skip
    return Asked(parse(tree), folder)


def turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions that the server sends to one party are in another order."""
    align = PartyRows.align

    async def lied(self: PartyRows, *session: Any) -> Features | None:
        features = await align(self, *session)
        if self.name != "party2" or features is None:
            return features
        return features.rows(torch.arange(len(features.values)).flip(0))

    monkeypatch.setattr(PartyRows, "align", lied)


def test_a_party_whose_rows_are_aligned_otherwise_is_named_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned(monkeypatch)
    asked = _aligned(tmp_path)
    with pytest.raises(AssertionError):
        asked.train()
    errors = {name: str(error) for name, error in asked.errors.items()}
    assert "party2 does not have the same rows as party1, in the same order" in errors["party1"], errors


def test_a_party_whose_rows_are_aligned_otherwise_is_named_in_a_prediction(
    aligned: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    aligned.train()
    ids = [line.split(",")[0] for line in (aligned.folder / "server.csv").read_text().splitlines()[1:]]
    aligned.ask(asking(*ids[:20], times=2))
    assert not any(aligned.errors.values()), aligned.errors
    turned(monkeypatch)
    aligned.ask(asking(*ids[:20], times=2))
    errors = {name: str(error) for name, error in aligned.errors.items()}
    assert "party2 does not have the same rows as party3, in the same order" in errors["party3"], errors


# Messages that are alike for all.


def test_two_messages_of_a_round_do_not_hide_the_first() -> None:
    """The party would act on the first one, and its statement would have the second."""

    def twice(item: Item) -> Iterator[Item]:
        if isinstance(item, AverageGradient) and item.round == 5:
            yield replace(item, dh=item.dh * -5)
        yield item

    with pytest.raises(ContractError, match="server sent AverageGradient: expected one in round 5, got a second"):
        federate(config(AVERAGED, *ROUNDS), on_cohort=lambda cohort: at(cohort, VICTIM, twice))


# FedVS.


@pytest.mark.parametrize(
    "change", [{"sharing": "0123456789abcdef"}, {"columns": lambda columns: columns + torch.tensor([0, 0, 0, 1])}]
)
def test_a_party_that_is_told_of_another_sharing_opens_no_box(change: dict[str, Any]) -> None:
    def other(item: Item) -> Iterator[Item]:
        if isinstance(item, Preparation):
            changes = {name: value(item.columns) if callable(value) else value for name, value in change.items()}
            item = replace(item, **changes)
        yield item

    with pytest.raises(ContractError, match=r"everybody's data shares, got none of party(2|1, party3, party4)$"):
        federate(config(PROTOCOLS["sealed"], *ROUNDS), on_cohort=lambda cohort: at(cohort, VICTIM, other))
