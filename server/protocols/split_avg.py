"""Split learning with one global embedding, server side. The boxes: common/protocols/split_avg.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.split_avg import AverageGradient, Config, Embedding, Gradient
from colonnade.server.aggregation.masked_sums import Sums, blinded, evaluate_sums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.fusion.joint import CombinedHead
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.round_modes import as_they_come, together


def joint(ctx: ServerContext, cfg: Config) -> CombinedHead:
    """The head theta_0 over the global embedding."""
    return CombinedHead(ctx, cfg.embedding, cfg.combine)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains the head on the global embedding and returns the gradient, synchronously or asynchronously."""
    width, parties, whole = cfg.embedding, tuple(clients), joint(ctx, cfg)
    how = "last" if cfg.arrivals else "zero" if cfg.missing == "leave_out" else cfg.missing
    present = StandIn(ctx, parties, width, how)
    alone = cfg.missing == "leave_out" and not cfg.arrivals and cfg.combine != "concatenate"

    blind = await blinded(ctx, clients, width) if cfg.aggregate == "blinded" else None

    def counted(responses: Mapping[str, object]) -> list[str]:
        """Parties that H averages; all of them, as zeros, if none responded."""
        return [party for party in parties if party in responses] if alone and responses else list(parties)

    def predict(responses: Responses[Evaluation], block: Tensor) -> Tensor:
        parts = dict(
            zip(parties, present.zeros({p: response.h for p, response in responses.items()}, len(block)), strict=True)
        )
        return whole.logits([parts[party] for party in counted(responses)])

    async def learn(responses: Mapping[str, Embedding], batch: Tensor, t: int) -> float | None:
        """Steps 2 and 3 for embeddings of round t on one batch: the loss, or None if too few came."""
        filled = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if filled is None:
            return None
        parts, among = dict(zip(parties, filled, strict=True)), counted(responses)
        loss, dh, shared = whole.backward([parts[party] for party in among], partial(ctx.targets, batch))  # 2
        if cfg.alike:
            await clients.broadcast(dict.fromkeys(responses, AverageGradient(t, shared, dh[0])))  # 3
        else:
            gradients = dict(zip(among, dh, strict=True))
            await clients.broadcast({party: Gradient(t, shared, gradients[party]) for party in responses})  # 3
        whole.step()
        return loss

    async def unseen(sums: Sums, t: int) -> tuple[Responses[Message], float | None]:
        """Steps 1 to 3 where the server sees only the sum of the embeddings."""
        batch = ctx.schedule.batch(t)
        found = await sums.training(t, batch)
        if found.total is None:
            return found.answers, None
        loss, (dh,), _ = whole.backward([found.total / len(found.answers)], partial(ctx.targets, batch))
        await clients.broadcast(dict.fromkeys(found.answers, AverageGradient(t, len(found.answers), dh)))
        whole.step()
        return found.answers, loss

    train = partial(as_they_come if cfg.arrivals else together, ctx, clients, Embedding, width, learn)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        responses, loss = await (unseen(blind, t) if blind else train(t))  # 1
        if loss is None:
            ctx.skip(t, responses)
            continue
        ctx.record(t, loss, responses)
        if blind:
            await evaluate_sums(ctx, blind, t, lambda h, count: whole.logits([h / count]), responses)
            continue
        await evaluate(ctx, clients, Evaluation, t, predict, responses, width=width)
