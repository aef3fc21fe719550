"""Refusals in an alignment: keys, policies, forbidden messages, and checks that a configuration cannot have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.alignment.checks import checks_of, one_time
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import Common, Points, Positions
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Item
from colonnade.common.errors import ConfigError, ContractError, DataError
from colonnade.common.messaging.message import Message
from tests.common.alignment.test_alignment import TABLES, errors
from tests.support.alignment import align, federation


class TestPolicy:
    """Requirements of a party's policy."""

    def test_a_dictionary_is_refused_before_anything_leaves(self) -> None:
        found = align(federation(2), TABLES, policies={"party2": PolicyConfig(max_other_rows=6)})
        assert isinstance(found.rows["party2"], ConfigError)
        assert errors(found)["party2"] == (
            "parties.party2.policy.max_other_rows = 6: the federation has 7 keys at party1"
        )
        assert not [m for sender, _to, m in found.messages if sender == "party2" and isinstance(m, Points)]
        assert not found.kept

    def test_too_few_are_refused_before_the_server_knows_which(self) -> None:
        found = align(federation(2), TABLES, policies={"party1": PolicyConfig(min_common_rows=4)})
        assert "min_common_rows = 4: the federation has 3 common keys" in errors(found)["party1"]
        assert not [m for sender, _to, m in found.messages if sender == "party1" and isinstance(m, Positions)]
        assert not isinstance(found.rows[SERVER], torch.Tensor) and not found.kept

    def test_an_exact_minimum_of_common_rows_suffices(self) -> None:
        policy = PolicyConfig(min_common_rows=3, max_other_rows=7)
        assert len(align(federation(2), TABLES, policies={"party2": policy}).common(TABLES)[SERVER]) == 3


class TestWrongKeys:
    """Refusals at the member itself, without quoting a key."""

    @pytest.mark.parametrize(
        ("ids", "said"),
        [
            (None, "its data have no keys"),
            ([], "its data have no keys"),
            (["secret", "other", " secret", "secret "], "2 of 4 rows repeat the key of another row"),
            (["secret", " ", ""], "2 of 3 rows have no key"),
        ],
    )
    def test_of_a_table(self, ids: Sequence[str] | None, said: str) -> None:
        with pytest.raises(DataError, match=said) as refused:
            RowKeys.of(ids, federation(1).keys, "party1")
        assert "party1" in str(refused.value) and "secret" not in str(refused.value) + refused.value.hint

    @given(st.text(max_size=8))
    def test_a_normal_key_stays_as_it_is(self, key: str) -> None:
        for config in (KeysConfig(), KeysConfig(case="fold")):
            assert config.normal(config.normal(key)) == config.normal(key)


def _first(wrong: Message, sender: str) -> Callable[[str, Item], Item]:
    """Replaces a sender's first message of that kind by a wrong one."""
    left = [wrong]

    def change(by: str, item: Item) -> Item:
        if by != sender or type(item) is not type(wrong) or not left:
            return item
        field = FIELD[type(wrong)]
        return replace(item, **{field: getattr(left.pop(), field)})

    return change


FIELD = {Points: "points", Positions: "positions", Common: "rows"}
ORDER_4 = torch.zeros(5, 32, dtype=torch.uint8)
ORDER_4[:, 0] = 1


@pytest.mark.parametrize(
    ("wrong", "sender", "who", "said"),
    [
        (Points(1, torch.zeros(4, 32, dtype=torch.uint8)), "party1", SERVER, "keys = 5"),
        (Points(1, ORDER_4), "party2", SERVER, "elements of the curve"),
        (Points(1, ORDER_4), SERVER, "party1", "elements of the curve"),
        (Positions(1, torch.tensor([99, 0, 1])), "party1", SERVER, "positions"),
        (Positions(1, torch.tensor([-1, 0, 1])), SERVER, "party1", "positions of 0 to"),
        (Positions(1, torch.tensor([0, 1])), "party2", SERVER, "keys = 3"),
        (Common(1, 1000, ""), SERVER, "party1", "at most our 7"),
    ],
)
def test_forbidden_messages_are_refused_by_their_receiver(wrong: Message, sender: str, who: str, said: str) -> None:
    found = align(federation(2), TABLES, change=_first(wrong, sender))
    assert isinstance(found.rows[who], ContractError) and said in errors(found)[who]
    assert not found.kept


def test_an_element_twice_is_refused() -> None:
    def change(sender: str, item: Item) -> Item:
        if sender == "party1" and isinstance(item, Points) and len(item.points):
            item.points[-1] = item.points[0]
        return item

    found = align(federation(2), TABLES, change=change)
    assert isinstance(found.rows[SERVER], ContractError) and "every element once" in errors(found)[SERVER]


@pytest.mark.parametrize("align", ["none", "sorted"])
@pytest.mark.parametrize("checks", ["signed", "planted", "proofs"])
def test_there_is_nothing_to_check_without_an_intersection(align: str, checks: str) -> None:
    with pytest.raises(ConfigError, match=f"align_checks = {checks} with federation.align = {align}") as refused:
        federation(2, align, align_checks=checks)
    assert "align: psi" in refused.value.hint


def test_proofs_need_two_parties() -> None:
    """The server is both neighbours of a single party, and would know its shuffle."""
    with pytest.raises(ConfigError, match="proofs with one party") as refused:
        federation(1, align_checks="proofs")
    assert "planted" in refused.value.hint


def test_proofs_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coincurve", None)
    with pytest.raises(ConfigError, match="coincurve is not installed") as refused:
        federation(2, align_checks="proofs")
    assert "colonnade[proofs]" in refused.value.hint
    assert federation(2, align_checks="planted").align_checks == "planted"


def test_predictions_sign_their_lists_and_secrets_are_drawn_for_one_alignment_where_it_matters() -> None:
    assert [checks_of(mode, whole=False) for mode in ("none", "signed", "planted", "proofs")] == [
        "none",
        *["signed"] * 3,
    ]
    assert [one_time(mode) for mode in ("none", "signed", "planted", "proofs")] == [False, False, True, True]
