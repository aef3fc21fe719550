"""VIMADMM, a party's half. The box: common/protocols/vimadmm.py."""

from __future__ import annotations

from functools import partial

import torch

from client.context import ClientContext
from client.evaluation import evaluate
from common.conversation import Link
from common.numerics import admm
from common.protocols.vimadmm import Config, Embedding, Evaluation, Update


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends embeddings and makes tau local steps towards the residuals that come back."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    model, optimiser, classes = ctx.model(cfg.embedding), ctx.optimiser(), ctx.federation.outputs
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        with torch.no_grad():
            h = model(x)  # (rows, width)
        await server.send(Embedding(t, ctx.release(h)))  # 1
        update = await server.recv(Update, t, rows=len(batch), width=cfg.embedding, classes=classes)
        if update is None:  # the server went on without us: follow it
            continue
        dual, residual, head = (part.to(ctx.device) for part in (update.dual, update.residual, update.head))
        for _ in range(cfg.tau):  # 6
            h = model(x)
            with torch.no_grad():
                dh = admm.local_gradient(h @ head, dual, residual, cfg.rho) @ head.T
            optimiser.zero_grad()
            h.backward(dh)
            optimiser.step()
        await evaluate(ctx, server, t, model, partial(Evaluation, t))
