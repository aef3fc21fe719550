"""VAFL, server side. The boxes: common/protocols/vafl.py."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from torch import Tensor

from colonnade.common.contracts.embeddings import Evaluation, Gradient
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.vafl import Config, Embedding
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.joint import WeightedHead
from colonnade.server.training.imputation import StandIn
from colonnade.server.training.round_modes import as_they_come, together


def joint(ctx: ServerContext, cfg: Config) -> WeightedHead:
    """The weights a_k, if configured, and the head theta_0."""
    weights_lr = cfg.weights_lr if cfg.combine == "sum" else None
    return WeightedHead(ctx, len(ctx.federation.names), cfg.embedding, weights_lr)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains head and weights and returns each party its gradient, synchronously or asynchronously."""
    width, parties = cfg.embedding, tuple(clients)
    whole = joint(ctx, cfg)
    private = ctx.protection(whole.module)
    present = StandIn(ctx, parties, width, "last" if cfg.arrivals else cfg.missing)

    async def learn(responses: Mapping[str, Embedding], batch: Tensor, t: int) -> float | None:
        """Steps 2 and 3 for embeddings of round t on one batch: the loss, or None if too few came."""
        parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if parts is None:
            return None
        indices = [index for index, party in enumerate(parties) if party in responses]
        targets = partial(ctx.targets, batch)
        dh: Tensor | Mapping[int, Tensor]
        if private is None:
            loss, dh = whole.backward(parts, targets)  # 2
        else:
            loss, dh = whole.protected(parts, targets, batch, indices, private)
        await clients.broadcast({parties[index]: Gradient(t, dh[index]) for index in indices})  # 3
        whole.step()
        return loss

    train = partial(as_they_come if cfg.arrivals else together, ctx, clients, Embedding, width, learn)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        responses, loss = await train(t)  # 1
        if loss is None:
            ctx.skip(t, responses)
            continue
        ctx.record(t, loss, responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)
