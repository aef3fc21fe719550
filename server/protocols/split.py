"""Split learning, server side. The box: common/protocols/split.py."""

from __future__ import annotations

from functools import partial

from colonnade.common.contracts.embeddings import Embedding, Evaluation, Gradient
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.split import Config
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.joint import JointHead
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, cfg: Config) -> JointHead:
    """The head theta_0."""
    return JointHead(ctx, cfg.embedding)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains the head on concatenated embeddings and returns each party its gradient."""
    width, parties = cfg.embedding, tuple(clients)
    whole, present = joint(ctx, cfg), StandIn(ctx, parties, width, cfg.missing)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        responses = await clients.collect(Embedding, t, ctx.quorum, rows=len(batch), width=width)  # 1
        parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if parts is None:
            ctx.skip(t, responses)
            continue
        loss, dh = whole.backward(parts, partial(ctx.targets, batch))  # 2
        await clients.broadcast({party: Gradient(t, dh[party]) for party in responses})  # 3
        whole.step()
        ctx.record(t, loss, responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)
