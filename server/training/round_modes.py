"""Parties that come when they like, or all together: what a round of either is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from statistics import fmean

from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, check_exact
from colonnade.server.training.context import ServerContext
from colonnade.server.training.staleness import Staleness

Learn = Callable[[Mapping[str, M], Tensor, int], Awaitable[float | None]]
"""(answers, their rows int64 (rows,), the round they are of) -> the loss, or None if too few answered."""


async def together(
    ctx: ServerContext, clients: Cohort, kind: type[M], width: int, learn: Learn[M], t: int
) -> tuple[Responses[M], float | None]:
    """A round of everyone's answers about one batch.

    Args:
        kind: the message that a party answers with.
        width: of an embedding.
        learn: is given all answers at once.
        t: the round.

    Returns:
        Who answered, and the loss; None if nothing was learned.
    """
    batch = ctx.schedule.batch(t)
    answers = await clients.collect(kind, t, ctx.quorum, rows=len(batch), width=width)
    return answers, await learn(answers, batch, t)


async def as_they_come(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[M],
    width: int,
    learn: Learn[M],
    t: int,
    *,
    ahead: int | None = None,
) -> tuple[Responses[M], float | None]:
    """A round of as many turns as there are parties, each about the batch of its own number; else as `together`.

    Args:
        kind: the message that a party takes its turn with; it has a field `turn`.
        learn: is given one answer after the other.
        ahead: turns that a party may be ahead of the slowest; None for any number. Whoever is, waits.

    Raises:
        ContractError: there is no such turn, or the answer has other rows.
    """
    came: dict[str, M] = {}
    losses = []
    pace = Staleness(ctx, tuple(clients))
    async for party, answer in _turns(ctx, clients, kind, width, t, lambda party: pace.within(party, ahead)):
        batch = _batch_of(ctx, party, answer)
        losses.append(await learn({party: answer}, batch, answer.round) or 0.0)
        pace.enter(party, batch)
        came[party] = answer
    ctx.telemetry.event("pace", round=t, turns=pace.of_round(), parties=pace.summary())
    absent = tuple(party for party in clients if party not in came)
    return Responses(came, absent), fmean(losses) if losses else None


async def _turns(
    ctx: ServerContext, clients: Cohort, kind: type[M], width: int, t: int, ready: Callable[[str], bool]
) -> AsyncIterator[tuple[str, M]]:
    """A round's arrivals: whoever comes next, or one of each where everyone is waited for."""
    if ctx.schedule.evaluations(t):
        answers = await clients.collect(kind, t, ctx.quorum, width=width)
        for party, answer in answers.items():
            yield party, answer
        return
    given_up = ctx.schedule.evaluated_before(t)  # when that round called everyone
    arrivals = clients.arrivals(kind, after=given_up, ready=ready, limit=ctx.quorum.limit, width=width)
    for _ in clients:
        yield await anext(arrivals)


def _batch_of(ctx: ServerContext, party: str, answer: M) -> Tensor:
    """The rows of a party's turn, int64 (rows,)."""
    turn: int = getattr(answer, "turn", 0)
    if turn < 1:
        raise ContractError(party, type(answer).__name__, "turn", "at least 1", str(turn))
    batch = ctx.schedule.batch(turn)
    check_exact(party, answer, {"rows": len(batch)})
    return batch
