"""FedBCD, party side. The box: common/protocols/fedbcd.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.common.contracts.embeddings import Embedding, Evaluation, Gradient
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.local_steps import stale_steps
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.fedbcd import Config

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and makes tau local steps along the gradient that comes back."""
    model, optimiser = ctx.model(cfg.embedding), ctx.optimiser()
    bottom, step = ctx.backprop(model), stepper(optimiser)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        h = bottom.forward(x)  # (rows, width)
        await server.send(Embedding(t, ctx.release(h, rows=batch)))  # 1
        gradient = await server.recv(Gradient, t, rows=len(batch), width=cfg.embedding)
        if gradient is None:  # the server went on without us: follow it
            continue
        stale_steps(bottom, step, x, gradient.dh.to(ctx.device), steps=cfg.tau)  # 4
        await evaluate(ctx, server, t, model, partial(Evaluation, t))
