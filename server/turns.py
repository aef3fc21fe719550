"""Parties that come when they like: whose turn comes in a round, and which rows it is about."""

from __future__ import annotations

from collections.abc import AsyncIterator

from torch import Tensor

from common.conversation import Cohort
from common.errors import ContractError
from common.message import M, Message, check_exact
from server.context import ServerContext


async def turns(ctx: ServerContext, clients: Cohort, kind: type[M], t: int, width: int) -> AsyncIterator[tuple[str, M]]:
    """A round's arrivals: as many as there are parties, or one of each where everyone is waited for.

    Args:
        kind: the message that a party takes its turn with.
        t: the round.
        width: of an embedding.
    """
    if ctx.schedule.evaluations(t):
        answers = await clients.collect(kind, t, ctx.quorum, width=width)
        for party, answer in answers.items():
            yield party, answer
        return
    given_up = ctx.schedule.evaluated_before(t)  # when that round called everyone
    arrivals = clients.arrivals(kind, after=given_up, limit=ctx.quorum.limit, width=width)
    for _ in clients:
        yield await anext(arrivals)


def batch_of(ctx: ServerContext, party: str, answer: Message, turn: int) -> Tensor:
    """The rows of a party's turn, int64 (rows,).

    Raises:
        ContractError: there is no such turn, or the answer has other rows.
    """
    if turn < 1:
        raise ContractError(party, type(answer).__name__, "turn", "at least 1", str(turn))
    batch = ctx.schedule.batch(turn)
    check_exact(party, answer, {"rows": len(batch)})
    return batch
