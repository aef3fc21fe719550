"""A server that encrypts vectors of its choice: powers of two at some rows, so that a sum's bits name its bin's rows.

It reads the bins of so many rows a vector, and is answered within the levels of a tree, and in a run no more than
`policy.max_vectors` (`client/test_answers.py`, `protocols/test_secureboost.py`). The party cannot see it: zeros are
encrypted as all numbers are. The threat model names this as a threat that remains; the scene holds it to account.

Bounds: sums under encryption (server, both).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.client.training.bins import binned
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import ConfigError
from colonnade.server.protocols.secureboost import TreeSums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.trees.forest import Forest
from colonnade.server.training.trees.grower import Query
from colonnade.server.training.trees.splits import Whole
from colonnade.simulation.federation import Simulation
from tests.protocols.test_secureboost import CLEAR, DEPTH, NOISY, ROUNDS, config

NEEDED = ROUNDS << DEPTH


class Powers(Query):
    """Vectors of a level: each of its own rows, from the row `first` on."""

    def __init__(self, rows: int, count: int, each: int, first: int) -> None:
        self.rows, self.groups, self._each, self._first = rows, count // 2, each, first

    def vectors(self, first: int, last: int) -> Whole:
        found = np.zeros((last - first, 2 * self.groups), np.int64)
        for number in range(2 * self.groups):
            rows = self._first + number * self._each + np.arange(self._each)
            here = (rows >= first) & (rows < last)
            found[rows[here] - first, number] = np.int64(1) << np.flatnonzero(here)
        return found


def reading(read: dict[int, list[int]]) -> Any:
    """A server side that fills in the bins of rows, for the first column of the second party."""

    async def serve(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
        exchange = TreeSums(ctx, clients, cfg, Forest(3, len(ctx.labels)))
        each, first = exchange.size.largest_sum.bit_length(), 0
        async for t in clients.rounds(ROUNDS, after=ctx.round):
            if t == 1:
                await exchange.open(t)
            for level in range(DEPTH):
                asked = Powers(exchange.size.rows, 1 << max(level, 1), each, first)
                sums = (await exchange.sums(t, level, asked))[1][: exchange.columns[1][0].bins]
                for number, line in enumerate(sums.T):
                    for row in range(each):
                        found = np.flatnonzero(line >> row & 1)
                        if first + number * each + row < exchange.size.rows:
                            read[first + number * each + row] = found.tolist()
                first += 2 * asked.groups * each
            ctx.skip(t, exchange.last)

    return serve


def test_it_reads_dozens_of_rows_a_vector_up_to_the_partys_bound() -> None:
    read: dict[int, list[int]] = {}
    outcome = Simulation(config("federation.protocol.bins=4"), instead={"server": reading(read)}).run()
    ctx = outcome.clients["party2"]
    train = ctx.schedule.partition.train.numpy()
    codes = binned(ctx, most=4, least=5).codes[train, 0]
    assert read == {row: [int(code)] for row, code in enumerate(codes)}  # all of a small table
    assert len(train) < 30 * NEEDED


class One(Query):
    """A vector that is one at a row, which below the root is alone in its node."""

    def __init__(self, rows: int, row: int) -> None:
        self.rows, self.groups, self.places = rows, 1, np.full((rows, 1), -1)
        self.places[row] = 0

    def vectors(self, first: int, last: int) -> Whole:
        return np.repeat(self.places[first:last] + 1, 2, axis=1)


def asked(*rows: int) -> list[Whole]:
    """What a server reads in the first round, at each level, that asks for one row after the other."""
    read: list[Whole] = []

    async def serve(ctx: ServerContext, clients: Cohort, cfg: Any) -> None:
        exchange = TreeSums(ctx, clients, cfg, Forest(3, len(ctx.labels)))
        async for t in clients.rounds(1, after=ctx.round):
            await exchange.open(t)
            for level, row in enumerate(rows):
                read.append(np.concatenate(await exchange.sums(t, level, One(exchange.size.rows, row))))
            ctx.skip(t, exchange.last)

    Simulation(config(CLEAR, NOISY, "federation.rounds=1"), instead={"server": serve}).run()
    return read


def test_another_question_under_the_same_round_and_level_has_noise_of_its_own() -> None:
    """After a Rewind; the difference of two answers would be the bins of the rows. The same question tells no more."""
    (root, node), again, (other, _), (_, below) = asked(7, 7), asked(7, 7), asked(8, 8), asked(7, 8)
    assert np.array_equal(again, [root, node])
    assert min(np.abs(root - other).mean(), np.abs(node - below).mean()) > 200  # noise of deviation 512 in each


def test_a_smaller_bound_ends_it() -> None:
    with pytest.raises(ConfigError, match="max_vectors = 10"):
        Simulation(config("parties.party2.policy.max_vectors=10"), instead={"server": reading({})}).run()
