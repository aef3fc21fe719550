"""Linear ADMM, party side. The box: common/protocols/linear_admm.py."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from colonnade.client.models.local import Local
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.common.conversation.conversation import Link
from colonnade.common.numerics.ridge import Ridge
from colonnade.common.protocols.linear_admm import Config, Evaluation, Logits, Update


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends the logits of a linear model and solves for the model that fits the response."""
    classes, sigma = ctx.federation.outputs, len(ctx.federation.names) * cfg.rho
    if cfg.damping == "batches":
        sigma *= ctx.schedule.batches
    weights = _weights(ctx)  # W_k
    model = _Linear(weights)
    rows, part = torch.empty(0, dtype=torch.int64), None
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        if part is None or not torch.equal(batch, rows):  # with one batch, factorised once in a run
            rows, part = batch, Ridge(ctx.features[batch].flatten(1), sigma, cfg.beta)
        await server.send(Logits(t, ctx.release(model(part.inputs))))  # 1
        update = await server.recv(Update, t, rows=len(batch), classes=classes)
        if update is None:  # the server went on without us: follow it
            continue
        weights.copy_(part.solve(weights, update.g.to(ctx.device)))  # 5
        await evaluate(ctx, server, t, model, partial(Evaluation, t))


def local(ctx: ClientContext, _cfg: Config) -> Local:
    """x W_k, with W_k restored from the state or newly initialised."""
    return Local(_Linear(_weights(ctx)))


def _weights(ctx: ClientContext) -> Tensor:
    columns, classes = math.prod(ctx.features.shape[1:]), ctx.federation.outputs
    return ctx.state.keep("weights", lambda: torch.zeros(columns, classes, device=ctx.device))


class _Linear(nn.Module):
    """x W_k."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self._weights = weights

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> (rows, classes)."""
        return x.flatten(1) @ self._weights
