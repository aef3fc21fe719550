"""Linear ADMM, a party's half. The box: common/protocols/linear_admm.py."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn

from client.context import ClientContext
from client.evaluation import evaluate
from common.conversation import Link
from common.numerics.ridge import Ridge
from common.protocols.linear_admm import Config, Evaluation, Logits, Update


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends the logits of a linear model and solves for the model that the answer asks for."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    classes, sigma = ctx.federation.outputs, len(ctx.federation.names) * cfg.rho
    model = ctx.state.keep("model", lambda: _linear(math.prod(ctx.features.shape[1:]), classes).to(ctx.device))
    weights = model[1].weight.detach()  # W_k', (classes, columns)
    rows, part = torch.empty(0, dtype=torch.int64), None
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        if part is None or not torch.equal(batch, rows):  # with one batch, factorised once in a run
            rows, part = batch, Ridge(ctx.features[batch].flatten(1), sigma, cfg.beta)
        await server.send(Logits(t, ctx.release(part.inputs @ weights.t())))  # 1
        update = await server.recv(Update, t, rows=len(batch), classes=classes)
        if update is None:  # the server went on without us: follow it
            continue
        weights.copy_(part.solve(weights.t(), update.g.to(ctx.device)).t())  # 5
        await evaluate(ctx, server, t, model, partial(Evaluation, t))


def _linear(columns: int, classes: int) -> nn.Sequential:
    """x W_k, which begins at 0: the problem is convex."""
    layer = nn.Linear(columns, classes, bias=False)
    nn.init.zeros_(layer.weight)
    return nn.Sequential(nn.Flatten(), layer)
