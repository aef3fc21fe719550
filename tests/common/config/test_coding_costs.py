"""The costs of coding against the messages of a simulated run, byte by byte."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.cli.checks.sums import CodingCost, coding_costs
from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.rows import Partition
from colonnade.common.messaging.message import Message, payload_bytes
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.fedvs import Answer, Bundle, Gradient, Opened, Preparation, Prepared, Senders, Shares
from tests.support.federation import Outcome, config, federate

ROUND = (Shares, Opened, SetProof, Answer, Bundle, Senders, SetProofs, Gradient)
PREPARATION = (Prepared, Preparation, Shares, Bundle)
SETS = (
    "federation.parties=7",
    "federation.epochs=0",
    "federation.rounds=2",
    "federation.rows={validation: 0, test: 200}",
    "every_party.model={name: polynomial, layers: 2}",
    "every_party.data.scale=unit",
)


def run(segments: int, *sets: str) -> Outcome:
    return federate(config({"name": "fedvs", "embedding": 4, "segments": segments, "chunk": 500}, *SETS, *sets))


def cost_of(outcome: Outcome, segments: int) -> CodingCost:
    columns = [len(ctx.state["model"].weight) for ctx in outcome.clients.values()]
    costs = coding_costs(outcome.server.federation, columns, outcome.server.schedule.partition)
    return costs[segments - 1]


def sent(outcome: Outcome, round: int, kinds: tuple[type[Message], ...]) -> Callable[[str, str], int]:
    """Bytes of tensors from one member to another."""
    mine = [(who, to, m) for who, to, m in outcome.messages if m.round == round and isinstance(m, kinds)]
    return lambda sender, receiver: sum(payload_bytes(m) for who, to, m in mine if (who, to) == (sender, receiver))


@pytest.mark.parametrize(
    ("segments", "sets"),
    [
        (1, ()),
        (2, ("federation.protocol.masked_answers=false",)),
        (3, ("federation.compress.down=4",)),  # 255 of 256 rows a batch
        (2, ("federation.quorum={need: 5, grace: 1}",)),  # proofs of the set
        # two rows in a batch of one
        (2, ("federation.compress.down=16", "federation.batch=1", "federation.rows.test=5")),
    ],
)
def test_bytes_are_those_that_a_run_sends(segments: int, sets: tuple[str, ...]) -> None:
    outcome = run(segments, *sets)
    cost = cost_of(outcome, segments)
    training, before = sent(outcome, 1, ROUND), sent(outcome, 0, PREPARATION)
    names = outcome.server.federation.names
    assert cost.up == tuple(training(name, SERVER) for name in names)
    assert cost.down == tuple(training(SERVER, name) for name in names)
    assert cost.preparation_up == tuple(before(name, SERVER) for name in names)
    assert cost.preparation_down == tuple(before(SERVER, name) for name in names)
    gradients = [m for _, _, m in outcome.messages if isinstance(m, Gradient) and m.round == 1]
    assert {len(m.dh) for m in gradients} == {cost.rows}


def federation(parties: int, masks: int, batch: int) -> FederationConfig:
    protocol = {"name": "fedvs", "segments": 1, "masks": masks}
    agreed = {"id": "t", "protocol": protocol, "parties": parties, "classes": 2, "epochs": 1, "batch": batch}
    return parse({"federation": agreed}).federation


def parts(train: int) -> Partition:
    return Partition(torch.arange(train), torch.arange(0), torch.arange(train, train + 7))


def test_work_by_hand() -> None:
    one, two = coding_costs(federation(5, 1, 9), [3, 1, 2, 2, 2], parts(40))
    # K = 1: 9 coded rows times 10 columns against 9 rows times a party's own; K = 2: 4 coded rows, one row left over.
    assert one.work == pytest.approx((10 / 3, 10, 5, 5, 5))
    assert two.work == pytest.approx((40 / 27, 40 / 9, 40 / 18, 40 / 18, 40 / 18))
    assert (one.rows, two.rows) == (9, 8)
    assert (one.answers, one.stragglers, two.answers, two.stragglers) == (3, 2, 5, 0)


@given(st.integers(0, 14), st.integers(1, 3), st.integers(1, 12), st.integers(2, 60))
def test_every_segments_that_a_roster_allows_is_there_and_no_other(
    more: int, masks: int, batch: int, train: int
) -> None:
    parties = 2 * masks + 1 + more
    agreed = federation(parties, masks, min(batch, train))
    costs = coding_costs(agreed, [2] * parties, parts(train))
    allowed = [k for k in range(1, 30) if 2 * (k + masks - 1) + 1 <= parties and k <= train]
    assert [cost.segments for cost in costs] == allowed
    assert all(cost.answers + cost.stragglers == parties for cost in costs)
    assert costs[0].answers == agreed.protocol.code(parties).threshold
