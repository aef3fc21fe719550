"""VAFL, party side. The boxes: common/protocols/vafl.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.client.training.round_modes import follow_rounds
from colonnade.common.contracts.embeddings import Evaluation, Gradient
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.vafl import Config, Embedding

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and follows the gradient that comes back: once a round, or turn after turn."""
    model, optimiser = ctx.model(cfg.embedding), ctx.optimiser()
    bottom, step = ctx.backprop(model), stepper(optimiser)

    async def exchange(t: int, turn: int, until: int) -> bool:
        batch = ctx.schedule.batch(turn)
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        await server.send(Embedding(t, turn, ctx.release(h, rows=batch)))  # 1
        gradient = await server.recv(Gradient, t, until=until, rows=len(batch), width=cfg.embedding)
        if gradient is None:
            return False
        bottom.backward(gradient.dh.to(ctx.device))  # 4
        step()
        return True

    async def report(t: int) -> None:
        await evaluate(ctx, server, t, model, partial(Evaluation, t))

    await follow_rounds(ctx, server, exchange, report, arrivals=cfg.arrivals)
