"""C-VFL, party side. The box: common/protocols/c_vfl.py."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.label_messages import receive_labels
from colonnade.client.training.local import bottom as local
from colonnade.common.contracts.embeddings import Evaluation
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.build import build_agreed_head
from colonnade.common.models.local_steps import lone_steps
from colonnade.common.models.losses import OBJECTIVES
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.c_vfl import Config, Embedding, Head, Other, parameters

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and makes Q local steps down the joint loss, with all other parties' embeddings fixed."""
    model, optimiser, head = ctx.model(cfg.embedding), ctx.optimiser(), _head(ctx, cfg)
    bottom, step = ctx.backprop(model), stepper(optimiser)
    index, size = ctx.federation.names.index(ctx.name), parameters(ctx.federation, cfg)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        h = bottom.forward(x)  # (rows, width)
        await server.send(Embedding(t, ctx.release(h, rows=batch)))  # 1
        labels = await receive_labels(ctx, server, t, len(batch))
        others = await _others(ctx, server, t, rows=len(batch), width=cfg.embedding)
        theta = await server.recv(Head, t, parameters=size)
        if labels is None or others is None or theta is None:  # the server went on without us: follow it
            continue
        nn.utils.vector_to_parameters(theta.parameters.to(ctx.device), head.parameters())
        logits = partial(_logits, head, others[:index], others[index:])
        loss = partial(OBJECTIVES[ctx.federation.task].mean, targets=labels)
        lone_steps(bottom, step, h, x, logits, loss, steps=cfg.local_steps)  # 5
        await evaluate(ctx, server, t, model, partial(Evaluation, t))


def _head(ctx: ClientContext, cfg: Config) -> nn.Module:
    """g as agreed; its parameters come with every round, its dropout generator is the party's."""
    draws = ctx.state.keep("dropout", lambda: ctx.draws.generator("dropout"))
    inputs = cfg.embedding * len(ctx.federation.names)
    network = build_agreed_head(cfg.head, inputs, ctx.federation.outputs, draws)
    return network.to(ctx.device).requires_grad_(False)


async def _others(ctx: ClientContext, server: Link, round: int, *, rows: int, width: int) -> list[Tensor] | None:
    """The other parties' embeddings, (rows, width) each, in roster order; None if the server has moved on."""
    received = [await server.recv(Other, round, rows=rows, width=width) for _ in ctx.federation.names[1:]]
    came = [other.h.to(ctx.device) for other in received if other is not None]
    return came if len(came) == len(received) else None


def _logits(head: nn.Module, before: list[Tensor], after: list[Tensor], h: Tensor) -> Tensor:
    """g of all parties' embeddings, concatenated; h is this party's: (rows, width) -> (rows, classes)."""
    logits: Tensor = head(torch.cat([*before, h, *after], dim=1))
    return logits
