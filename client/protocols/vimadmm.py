"""VIMADMM, a party's half. The box: common/protocols/vimadmm.py."""

from __future__ import annotations

from functools import partial

from client.context import ClientContext
from client.evaluation import evaluate
from common.conversation import Link
from common.models.optimiser import stepper
from common.numerics.backprop import backprop
from common.numerics.local_steps import local_steps
from common.protocols.vimadmm import Config, Embedding, Evaluation, Update


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends embeddings and makes tau local steps towards the residuals that come back."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    model, optimiser, classes = ctx.model(cfg.embedding), ctx.optimiser(), ctx.federation.outputs
    bottom, step = backprop(model), stepper(optimiser)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        h = bottom.forward(x)  # (rows, width)
        await server.send(Embedding(t, ctx.release(h)))  # 1
        update = await server.recv(Update, t, rows=len(batch), width=cfg.embedding, classes=classes)
        if update is None:  # the server went on without us: follow it
            continue
        dual, residual, head = (part.to(ctx.device) for part in (update.dual, update.residual, update.head))
        local_steps(bottom, step, x, head=head, dual=dual, residual=residual, rho=cfg.rho, steps=cfg.tau)  # 6
        await evaluate(ctx, server, t, model, partial(Evaluation, t))
