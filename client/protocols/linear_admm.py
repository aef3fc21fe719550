"""Linear ADMM, party side. The box: common/protocols/linear_admm.py."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import Local
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.linear_admm import Config, Update


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


class Ridge:
    """argmin_W β/2 ‖W‖² + ⟨g, D W⟩ + σ/2b ‖D (W − W₀)‖², for one D and any number of g and W₀.

    The normal equations (σ/b D'D + β I) W = σ/b D'D W₀ − D'g are factorised once, in float64: where columns repeat each
    other, β alone keeps them regular.

    Args:
        inputs: D, float32 (b, d).
        sigma: σ > 0; M ρ if M parties step at once.
        beta: β > 0.
    """

    def __init__(self, inputs: Tensor, sigma: float, beta: float) -> None:
        self.inputs = inputs
        wide = inputs.double()
        self._pull = wide.t() @ wide * (sigma / len(inputs))
        shift = beta * torch.eye(inputs.shape[1], dtype=wide.dtype, device=wide.device)
        self._factor = torch.linalg.cholesky(self._pull + shift)

    def solve(self, weights: Tensor, gradient: Tensor) -> Tensor:
        """The minimiser W, float32 (d, c), from W₀, float32 (d, c), and g, float32 (b, c)."""
        pulled = self._pull @ weights.double() - (self.inputs.t() @ gradient).double()
        return torch.cholesky_solve(pulled, self._factor).to(weights.dtype)
