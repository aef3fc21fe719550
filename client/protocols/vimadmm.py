"""VIMADMM, party side. The box: common/protocols/vimadmm.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import bottom as local
from colonnade.common.config.models import MlpHeadConfig
from colonnade.common.config.protocol import damping_factor
from colonnade.common.contracts.embeddings import Embedding, Evaluation
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.backprop import Backprop
from colonnade.common.models.build import build_agreed_head
from colonnade.common.models.local_steps import Descent, headed_local_steps, local_steps
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.vimadmm import Config, Update

__all__ = ["local", "participate"]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends embeddings and makes tau local steps towards the residuals that come back."""
    model, optimiser, classes = ctx.model(cfg.embedding), ctx.optimiser(), ctx.federation.outputs
    bottom, step = ctx.backprop(model), stepper(optimiser)
    rho = cfg.rho * damping_factor(cfg.damping, len(ctx.federation.names))
    bounded = cfg.damping == "parties" and ctx.steps is None
    descent = Descent(optimiser, buffers=model.buffers()) if bounded else None
    descend, parameters = _descent(ctx, cfg, bottom, step), cfg.head.size(cfg.embedding, classes)
    drawn = None if ctx.steps is None else ctx.steps.draw
    secret = None if drawn is None else SecretSteps(ctx, drawn, bottom, step, classes, rho)
    async for t in server.rounds(after=ctx.round):
        if ctx.sits_out(t):
            await evaluate(ctx, server, t, model, partial(Evaluation, t))
            continue
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        h = bottom.forward(x)  # (rows, width)
        await server.send(Embedding(t, ctx.release(h, rows=batch)))  # 1
        update = await server.recv(Update, t, rows=len(batch), classes=classes, parameters=parameters)
        if update is None:  # the server went on without us: follow it
            continue
        dual, residual, head = (part.to(ctx.device) for part in (update.dual, update.residual, update.head))
        if secret is not None:
            secret.take(batch, dual, residual)
            secret.descend(head.view(cfg.embedding, classes), cfg.tau)  # 6
        else:
            descend(x, head, dual=dual, residual=residual, rho=rho, steps=cfg.tau, descent=descent)  # 6
        await evaluate(ctx, server, t, model, partial(Evaluation, t))


def _descent(ctx: ClientContext, cfg: Config, bottom: Backprop, step: Callable[[], None]) -> Callable[..., None]:
    """The local steps of Eq. 9, as a function of the inputs, the head as it travels, and the terms of the equation."""
    width, classes = cfg.embedding, ctx.federation.outputs
    if not isinstance(cfg.head, MlpHeadConfig):
        return lambda x, head, **terms: local_steps(bottom, step, x, head=head.view(width, classes), **terms)
    draws = ctx.state.keep("dropout", lambda: ctx.draws.generator("dropout"))
    network = build_agreed_head(cfg.head, width, classes, draws).to(ctx.device).requires_grad_(False)

    def descend(x: Tensor, head: Tensor, *, descent: Descent | None, **terms: Any) -> None:  # noqa: ARG001
        nn.utils.vector_to_parameters(head, network.parameters())
        headed_local_steps(bottom, step, network, x, **terms)

    return descend


class SecretSteps:
    """Eq. 9 by DP-SGD: the party itself draws a step's rows, instead of using the announced batch.

    The state keeps the newest dual and residual of every training row. A row without them is not drawn; the server
    knows which rows these are, and the others keep probability q.
    """

    def __init__(
        self,
        ctx: ClientContext,
        draw: Callable[[Tensor], Tensor],
        bottom: Backprop,
        step: Callable[[], None],
        classes: int,
        rho: float,
    ) -> None:
        self._features, self._draw, self._bottom, self._step, self._rho = ctx.features, draw, bottom, step, rho
        rows = ctx.features.shape[0]
        zeros = lambda: torch.zeros(rows, classes, device=ctx.device)  # noqa: E731
        self._dual, self._residual = ctx.state.keep("held duals", zeros), ctx.state.keep("held residuals", zeros)
        self._held = ctx.state.keep("held", lambda: torch.zeros(rows, dtype=torch.bool))
        self._train = ctx.schedule.partition.train.cpu()

    def take(self, batch: Tensor, dual: Tensor, residual: Tensor) -> None:
        """Keeps the duals and residuals of a batch, (rows, classes) each, in place of earlier ones."""
        self._dual[batch], self._residual[batch] = dual, residual
        self._held[batch.cpu()] = True

    def descend(self, head: Tensor, steps: int) -> None:
        """Takes tau steps, each over its own rows. Raises BudgetSpent if no steps of the run are left."""
        held = self._train[self._held[self._train]]
        for _ in range(steps):
            rows = self._draw(held)
            logits = self._bottom.forward(self._features[rows]) @ head
            pull = self._dual[rows] + self._rho * (logits - self._residual[rows])  # per row, not averaged
            self._bottom.backward(pull @ head.t() / max(1, len(rows)))  # of a mean, which NoisyBackprop undoes
            self._step()
