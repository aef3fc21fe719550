"""VIMADMM-J, party side. The box: common/protocols/vimadmm_j.py."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.local import Local, headed
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.config.protocol import damping_factor
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.backprop import backprop
from colonnade.common.models.local_steps import Descent, joint_local_steps
from colonnade.common.models.optimiser import stepper
from colonnade.common.protocols.vimadmm_j import Config, Signal, Update


def local(ctx: ClientContext, cfg: Config) -> Local:
    """Model and head, restored from the state or newly initialised."""
    return headed(ctx, cfg)[0]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends logits and makes tau local steps, head and bottom model in turn, towards the residuals that come back."""
    (whole, head), classes = headed(ctx, cfg), ctx.federation.outputs
    bottom, step = backprop(whole.model), stepper(ctx.optimiser())
    rho = cfg.rho * damping_factor(cfg.damping, len(ctx.federation.names))
    optimisers, buffers = (ctx.optimiser(), head.optimiser), whole.model.buffers()
    descent = Descent(*optimisers, buffers=buffers) if cfg.damping == "parties" else None
    own = await terms(ctx, server, cfg.aggregate, Logits, Evaluation)
    async for t in server.rounds(after=ctx.round):
        if ctx.sits_out(t):
            await evaluate(ctx, server, t, whole, partial(own.evaluation, t))
            continue
        batch = ctx.schedule.batch(t)
        if not await own.begin(t, subject(TRAINING, batch)):
            continue
        x = ctx.features[batch]
        with torch.no_grad():
            o = ctx.release(head(bottom.forward(x)))  # (rows, classes)
        await own.train(t, o)  # 1
        received = await _receive_signal(cfg, server, t, o, rows=len(batch), classes=classes)
        if received is None:  # the server went on without us: follow it
            continue
        dual, residual = (part.to(ctx.device) for part in received)
        joint_local_steps(
            bottom, step, head.weight, head.step, x,
            dual=dual, residual=residual, rho=rho, steps=cfg.tau, descent=descent,
        )  # fmt: skip  # 5
        await evaluate(ctx, server, t, whole, partial(own.evaluation, t))


async def _receive_signal(cfg: Config, server: Link, t: int, o: Tensor, **dims: int) -> tuple[Tensor, Tensor] | None:
    """lambda and s_k, or g and the o_k that was sent, which give the same gradients; None if we are late."""
    if cfg.update == "signal":
        signal = await server.recv(Signal, t, **dims)
        return None if signal is None else (signal.g, o)
    update = await server.recv(Update, t, **dims)
    return None if update is None else (update.dual, update.residual)
