"""C-VFL, server side. The box: common/protocols/c_vfl.py."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.messaging.label_messages import label_message
from colonnade.common.protocols.c_vfl import Config, Embedding, Head, Other
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.heads import agreed_head
from colonnade.server.training.fusion.joint import JointHead
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, cfg: Config) -> JointHead:
    """The server's model theta_0."""
    inputs = cfg.embedding * len(ctx.federation.names)
    return JointHead(ctx, cfg.embedding, agreed_head(ctx, cfg.head, inputs))


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Sends every party all that it needs to descend the joint loss alone, and descends it too."""
    ctx.warn(
        "C-VFL SHARES LABELS AND EMBEDDINGS: every party is sent the labels of all training rows, "
        "and what every other party sends of them"
    )
    width, parties = cfg.embedding, tuple(clients)
    whole, present = joint(ctx, cfg), StandIn(ctx, parties, width, cfg.missing)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        responses = await clients.collect(Embedding, t, ctx.quorum, rows=len(batch), width=width)  # 1
        parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if parts is None:
            ctx.skip(t, responses)
            continue
        with torch.no_grad():
            y = ctx.targets(batch, whole.logits(parts))  # the same for server and parties, in all local steps
        await clients.broadcast(dict.fromkeys(responses, label_message(t, y, regression=ctx.scale is not None)))  # 2
        for sender, h in zip(parties, parts, strict=True):
            await clients.broadcast({party: Other(t, h) for party in responses if party != sender})  # 3
        theta = whole.flat()
        await clients.broadcast({party: Head(t, theta) for party in responses})  # 4
        losses = [_descend(whole, parts, y) for _ in range(cfg.local_steps)]  # 6
        ctx.record(t, losses[0], responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)


def _descend(whole: JointHead, parts: list[Tensor], y: Tensor) -> float:
    loss, _ = whole.backward(parts, lambda _logits: y)
    whole.step()
    return loss
