"""A server that has two groups sum one round of FedVS over two sets, where N >= 2 R: no party answers.

Bounds: FedVS's shares (server).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.aggregation.coded import CodedParty
from colonnade.common.aggregation import fixed_point
from colonnade.common.aggregation.lagrange import CodedRows, LagrangeCode
from colonnade.common.aggregation.messages import SetProofs
from colonnade.common.aggregation.summed_sets import SetError, SetProver
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.parcels import Item, Open
from colonnade.common.crypto.sealing import TranscriptError
from colonnade.common.errors import ContractError
from colonnade.common.protocols.fedvs import Answer, Senders
from colonnade.common.protocols.fedvs import Config as FedvsConfig
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

LIED, EVERY = 2, 3
SETS = (
    "federation.parties=6", "federation.rounds=9", "federation.epochs=0", "federation.evaluate.every=99",
    "federation.quorum={need: 3, grace: 5}", f"federation.transcript.every={EVERY}",
)  # fmt: skip
FIRST, SECOND = ("party1", "party2", "party3"), ("party4", "party5", "party6")


class Split:
    """The lying server's link to each party."""

    def __init__(self) -> None:
        self.answers: dict[str, Tensor] = {}
        self.opened: list[int] = []

    def __call__(self, cohort: Cohort) -> None:
        for name, link in cohort.items():
            change_each(link, partial(self._down, name))
            if name in SECOND:
                link.deliver = self._up(name, link.deliver)  # type: ignore[method-assign]
            else:
                link.deliver = self._noted(name, link.deliver)  # type: ignore[method-assign]

    def _down(self, name: str, item: Item) -> Item:
        if isinstance(item, Open):
            self.opened.append(item.round)
        if isinstance(item, Senders) and item.round == LIED and name in SECOND:
            senders = item.senders.clone()
            senders[0] = 0
            item = replace(item, senders=senders)
        return item

    def _noted(self, name: str, deliver: Callable[[Item], None]) -> Callable[[Item], None]:
        def note(item: Item) -> None:
            if isinstance(item, Answer) and item.round == LIED:
                self.answers[name] = item.h
            deliver(item)

        return note

    def _up(self, name: str, deliver: Callable[[Item], None]) -> Callable[[Item], None]:
        """The second group's answers are the server's own affair."""

        def keep(item: Item) -> None:
            if isinstance(item, Answer) and item.round == LIED:
                self.answers[name] = item.h
            else:
                deliver(item)

        return keep


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, Tensor]]]:
    """The rounded weights of every round, with the party's context."""
    seen: dict[str, list[tuple[Any, Tensor]]] = defaultdict(list)
    rounded = CodedParty.round_weights

    def note(self: CodedParty) -> Tensor:
        found = rounded(self)
        seen[self._ctx.name].append((self._ctx, found.clone()))
        return found

    monkeypatch.setattr(CodedParty, "round_weights", note)
    return seen


def decoded(cfg: Config, answers: dict[str, Tensor], group: tuple[str, ...]) -> Tensor:
    names, protocol = cfg.federation.names, cfg.federation.protocol
    values = torch.stack([answers[name].reshape(-1) for name in group]).long()
    return LagrangeCode.of(protocol.code(len(names))).decode([names.index(name) for name in group], values)


def of_first_alone(item: Item) -> Item:
    """Leaves out the proofs of those who were told another set."""
    if isinstance(item, SetProofs) and item.round == LIED:
        proofs = item.proofs.clone()
        proofs[len(FIRST) :] = 0
        item = replace(item, proofs=proofs)
    return item


@pytest.mark.parametrize("hides", [False, True], ids=["relays all proofs", "hides those of the others"])
def test_no_party_answers_for_either_set(hides: bool) -> None:
    """Four of six have to confirm a set: where one lies with the server, no two sets have so many."""
    cfg, lie = config({"name": "fedvs", "embedding": 4, "segments": 1}, *SETS), Split()

    def alter(cohort: Cohort) -> None:
        lie(cohort)
        for name in FIRST if hides else ():
            change_each(cohort[name], of_first_alone)

    expected = "3 parties confirm that round 2 sums over" if hides else "party4 does not confirm that round 2 sums over"
    with pytest.raises(SetError, match=expected):
        federate(cfg, on_cohort=alter)
    assert not lie.answers and max(lie.opened) == LIED


@pytest.mark.parametrize("parties", range(3, 41))
def test_no_two_sets_are_confirmed_as_long_as_no_more_than_t_parties_lie(parties: int) -> None:
    """Every honest party confirms one set of a round, and those that lie confirm both."""
    for masks in range(1, (parties - 1) // 2 + 1):
        enough = FedvsConfig(masks=masks).confirming(parties)
        assert enough <= parties and 2 * enough > parties + masks
        assert 2 * (enough - 1) <= parties + masks  # one less, and two sets could be


def test_without_proofs_it_learns_one_partys_embeddings_and_the_run_ends_within_the_window(
    weights: dict[str, list[tuple[Any, Tensor]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows what is prevented, and that statements would have found it."""
    monkeypatch.setattr(SetProver, "check", lambda *_sets, **_more: None)
    cfg, lie = config({"name": "fedvs", "embedding": 4, "segments": 1}, *SETS), Split()
    with pytest.raises(
        TranscriptError, match=rf"round {LIED}: .* was told another Senders stage=0 than we were"
    ) as found:
        federate(cfg, on_cohort=lie)
    assert found.value.round == LIED and lie.opened[-1] <= LIED + 2 * EVERY

    difference = decoded(cfg, lie.answers, FIRST) - decoded(cfg, lie.answers, SECOND)
    protocol = cfg.federation.protocol
    field = LagrangeCode.of(protocol.code(6)).field
    ctx, rounded = weights["party1"][LIED - 1]
    block = CodedRows(ctx.schedule.partition, 1, cfg.federation).training(LIED)
    powers = ctx.state["model"].powers(ctx.features[block.rows[block.real]]).double()
    data = torch.floor(powers * 2**protocol.data_bits + 0.5).long()
    own = data @ fixed_point.from_field(field, rounded)
    learnt = fixed_point.from_field(field, difference % field.p).view(-1, protocol.embedding)[block.real]
    assert torch.equal(learnt, own)


def test_where_all_are_waited_for_no_party_answers_for_the_smaller_set() -> None:
    cfg = config({"name": "fedvs", "embedding": 4, "segments": 1}, *SETS, "federation.quorum=wait")
    lie = Split()
    with pytest.raises(ContractError, match=r"Senders\.senders: expected at least 6 parties, .* got 5"):
        federate(cfg, on_cohort=lie)
    assert not set(SECOND) & lie.answers.keys()
