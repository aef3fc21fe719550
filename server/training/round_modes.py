"""Synchronous and asynchronous rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, check_exact
from colonnade.server.training.context import ServerContext


class Staleness:
    """Turns by party, and staleness of the embeddings that the server holds; both are part of the state.

    The age of a party's embedding of a row is the number of turns, of any party, that the server has served since it
    arrived: the delay tau of the papers. Ages are measured when another party's turn uses the embedding. Rows that a
    party never sent do not count.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._indices = {party: index for index, party in enumerate(parties)}
        self._served: dict[str, int] = ctx.state.keep("served", lambda: dict.fromkeys(parties, 0))
        self._since = ctx.state.keep(
            "since", lambda: torch.zeros(len(parties), len(ctx.labels), dtype=torch.int32)
        )  # number of the turn in which a row arrived, from 1; 0 for never
        self._ages: dict[str, list[float]] = ctx.state.keep("ages", lambda: {party: [0.0, 0.0] for party in parties})
        self._before = Counter(self._served)

    @staticmethod
    def kept(ctx: ServerContext) -> bool:
        """True if the run is asynchronous, so that staleness is counted."""
        return "served" in ctx.state

    def enter(self, party: str, batch: Tensor) -> None:
        """Records a party's served turn. `batch`: row numbers, int64 (rows,)."""
        now = sum(self._served.values()) + 1
        since = self._since[:, batch]
        sent = since > 0
        for other, index in self._indices.items():
            if other != party and (count := int(sent[index].sum())):
                self._ages[other][0] += now * count - int(since[index].sum())  # unsent rows have 0 and add nothing
                self._ages[other][1] += count
        self._since[self._indices[party], batch] = now
        self._served[party] += 1

    def within(self, party: str, ahead: int | None) -> bool:
        """True if the party is at most `ahead` turns ahead of the slowest."""
        return ahead is None or self._served[party] - min(self._served.values()) <= ahead

    def of_round(self) -> dict[str, int]:
        """Number of turns of each party since this object was made."""
        return {party: count - self._before[party] for party, count in self._served.items()}

    def summary(self) -> dict[str, Any]:
        """By party: its turns, and its embeddings' mean age when other parties' turns used them (null if unused)."""
        ages = {party: round(total / count, 2) if count else None for party, (total, count) in self._ages.items()}
        return {party: {"turns": self._served[party], "staleness": ages[party]} for party in self._indices}


Learn = Callable[[Mapping[str, M], Tensor, int], Awaitable[float | None]]
"""(responses, their row numbers int64 (rows,), their round) -> the loss, or None if too few parties responded."""


async def together(
    ctx: ServerContext, clients: Cohort, kind: type[M], width: int, learn: Learn[M], t: int
) -> tuple[Responses[M], float | None]:
    """Runs a synchronous round: all parties respond for one batch. The loss is None if nothing was learned."""
    batch = ctx.schedule.batch(t)
    responses = await clients.collect(kind, t, ctx.quorum, rows=len(batch), width=width)
    return responses, await learn(responses, batch, t)


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
    """Runs an asynchronous round of as many turns as there are parties; turn i of a party uses batch i.

    Args:
        kind: the message of a turn, with a field `turn`.
        learn: called with one response at a time.
        ahead: number of turns that a party may be ahead of the slowest before it waits; None for no limit.
    """
    came: dict[str, M] = {}
    losses = []
    staleness = Staleness(ctx, tuple(clients))
    async for party, response in _turns(ctx, clients, kind, width, t, lambda party: staleness.within(party, ahead)):
        batch = _batch_of(ctx, party, response)
        losses.append(await learn({party: response}, batch, response.round) or 0.0)
        staleness.enter(party, batch)
        came[party] = response
    ctx.telemetry.event("pace", round=t, turns=staleness.of_round(), parties=staleness.summary())
    absent = tuple(party for party in clients if party not in came)
    return Responses(came, absent), fmean(losses) if losses else None


async def _turns(
    ctx: ServerContext, clients: Cohort, kind: type[M], width: int, t: int, ready: Callable[[str], bool]
) -> AsyncIterator[tuple[str, M]]:
    """A round's responses as they arrive; in a round that is evaluated, one of every party."""
    if ctx.schedule.evaluations(t):
        responses = await clients.collect(kind, t, ctx.quorum, width=width)
        for party, response in responses.items():
            yield party, response
        return
    given_up = ctx.schedule.evaluated_before(t)  # that round awaited every party: older messages are late
    arrivals = clients.arrivals(kind, after=given_up, ready=ready, limit=ctx.quorum.limit, width=width)
    for _ in clients:
        yield await anext(arrivals)


def _batch_of(ctx: ServerContext, party: str, response: M) -> Tensor:
    turn: int = getattr(response, "turn", 0)
    if turn < 1:
        raise ContractError(party, type(response).__name__, "turn", "at least 1", str(turn))
    batch = ctx.schedule.batch(turn)
    check_exact(party, response, {"rows": len(batch)})
    return batch
