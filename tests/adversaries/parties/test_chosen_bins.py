"""A party that puts single rows into bins of a column of words, to read labels from the order in which bins are split.

Words are ordered by the mean gradient of their bins, which of a bin of one row is its label, and a split's left side
tells the owner the order. The server orders no bin of fewer rows than SUPPORT, by its own sums. A party that raises
these by false answers, at most for a tenth of the rows, reads the order once, and is then named: the split's sides
contradict them. Of larger groups of rows that a party chooses it learns as of honest words which have more of a class.

Bounds: sums under encryption (party, both).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from colonnade.client.protocols import secureboost as party
from colonnade.client.protocols.secureboost import participate
from colonnade.client.training.bins import BinnedTable, Binning
from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.secureboost import Sums, Wanted
from colonnade.server.training.trees import splits
from colonnade.simulation.contexts import Side
from colonnade.simulation.federation import Simulation
from tests.protocols.test_secureboost import CLEAR, Lying, config

SINGLE, RAISED = 120, 30


def of_single_rows(ctx: ClientContext) -> BinnedTable:
    """One column of words: a bin for each of some training rows, and one for all others."""
    rows = ctx.schedule.partition.train[:SINGLE]
    codes = np.full((ctx.features.shape[0], 1), SINGLE, np.uint8)
    codes[rows.numpy(), 0] = np.arange(SINGLE)
    column = Binning("rows", None, tuple(map(str, range(SINGLE))), SINGLE, SINGLE)
    return BinnedTable((column,), codes)


def attacked(monkeypatch: pytest.MonkeyPatch, **instead: Side) -> list[tuple[float, float]]:
    """Every party does it, so that no better column hides theirs. Of each split that one is asked for: the share of
    single rows on its left side, and of those whose label is right if the left side is of class 1.
    """
    monkeypatch.setattr(party, "binned", lambda ctx, **_how: of_single_rows(ctx))
    outcome = Simulation(config(CLEAR, "federation.rounds=1"), record=True, instead=instead).run()
    labels = outcome.server.labels[outcome.server.schedule.partition.train[:SINGLE]].numpy()
    lefts = [m.left.numpy() for _, _, m in outcome.messages if isinstance(m, Wanted)]
    sides = [np.unpackbits(left)[:SINGLE] for message in lefts for left in message]
    return [(float(side.mean()), float((side == labels).mean())) for side in sides]


def test_the_server_orders_no_bin_of_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {on_the_left for on_the_left, _ in attacked(monkeypatch)} <= {0, 1}  # all together


def test_a_party_that_raises_them_reads_one_order_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def raised(ctx: ClientContext, message: Message) -> Message | None:
        if not isinstance(message, Sums):
            return None
        y = message.y.detach().clone()
        y[:RAISED, -1] += 3 << 21  # Hessians, in steps of 2^-21; every total stays as it is
        y[SINGLE, -1] -= RAISED * 3 << 21
        return replace(message, y=ctx.release(y))

    async def side(ctx: ClientContext, link: Link, cfg: Any) -> None:
        await participate(ctx, Lying(link, lambda message: raised(ctx, message)), cfg)  # type: ignore[arg-type]

    with pytest.raises(ContractError, match=r"party[123] sent Sides: expected the rows that its sums were over"):
        attacked(monkeypatch, party1=side, party2=side, party3=side)


def test_without_that_rule_one_split_would_read_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the test above can fail."""
    monkeypatch.setattr(splits, "SUPPORT", 1e-9)
    assert attacked(monkeypatch)[0][1] == 1
