"""VIMADMM-J, a party's half. The box: common/protocols/vimadmm_j.py."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from client.context import ClientContext
from client.evaluation import evaluate
from client.local import Local
from common.conversation import Link
from common.models.heads import xavier
from common.models.optimiser import build_optimiser, stepper
from common.numerics.backprop import backprop
from common.numerics.local_steps import joint_local_steps
from common.protocols.vimadmm_j import Config, Evaluation, Logits, Update


def local(ctx: ClientContext) -> Local:
    """theta_k and W_k, as they are in the state or begin."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    width, classes = cfg.embedding, ctx.federation.outputs
    model = ctx.model(width)
    return Local(model, ctx.state.keep("head", lambda: nn.Parameter(xavier(width, classes, ctx.seed).to(ctx.device))))


async def participate(ctx: ClientContext, server: Link) -> None:
    """Sends logits and makes tau local steps, head and bottom model in turn, towards the residuals that come back."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    classes, whole = ctx.federation.outputs, local(ctx)
    model, optimiser = whole.model, ctx.optimiser()
    head: nn.Parameter = ctx.state["head"]
    head_optimiser = ctx.state.keep("head optimiser", lambda: build_optimiser(ctx.config.head_optimiser, [head]))
    bottom, step, head_step = backprop(model), stepper(optimiser), stepper(head_optimiser)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        x = ctx.features[batch]
        with torch.no_grad():
            o = bottom.forward(x) @ head  # (rows, classes)
        await server.send(Logits(t, ctx.release(o)))  # 1
        update = await server.recv(Update, t, rows=len(batch), classes=classes)
        if update is None:  # the server went on without us: follow it
            continue
        dual, residual = (part.to(ctx.device) for part in (update.dual, update.residual))
        joint_local_steps(
            bottom, step, head, head_step, x, dual=dual, residual=residual, rho=cfg.rho, steps=cfg.tau
        )  # 5
        await evaluate(ctx, server, t, whole, partial(Evaluation, t))
