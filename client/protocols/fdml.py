"""FDML, party side. The box: common/protocols/fdml.py."""

from __future__ import annotations

from functools import partial

import torch

from colonnade.client.aggregation.masked_sums import terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.evaluation import evaluate
from colonnade.client.training.label_messages import receive_labels
from colonnade.client.training.local import Local, headed
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.backprop import backprop
from colonnade.common.models.losses import OBJECTIVES
from colonnade.common.models.optimiser import stepper
from colonnade.common.privacy.gaussian import through_clip
from colonnade.common.protocols.fdml import Aggregate, Config


def local(ctx: ClientContext, cfg: Config) -> Local:
    """Model and head, restored from the state or newly initialised."""
    return headed(ctx, cfg)[0]


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Sends logits and takes one step, on head and bottom model at once, down the loss of the mean over all parties."""
    (whole, head), classes, loss = headed(ctx, cfg), ctx.federation.outputs, OBJECTIVES[ctx.federation.task]
    bottom, step = backprop(whole.model), stepper(ctx.optimiser())
    parties = len(ctx.federation.names)
    own = await terms(ctx, server, cfg.aggregate, Logits, Evaluation)
    async for t in server.rounds(after=ctx.round):
        batch = ctx.schedule.batch(t)
        if not await own.begin(t, subject(TRAINING, batch)):
            continue
        h = bottom.forward(ctx.features[batch])  # (rows, width)
        with torch.no_grad():
            o = head(h)
        released = ctx.release(o)
        await own.train(t, released)  # 1
        labels = await receive_labels(ctx, server, t, len(batch))
        mean = await server.recv(Aggregate, t, rows=len(batch), classes=classes)
        if labels is None or mean is None:  # the server went on without us: follow it
            continue
        seen = mean.o.to(ctx.device)
        if cfg.own == "exact":
            seen = (o - released.to(ctx.device)) / parties + seen
        do = loss.gradient(seen, labels) / len(batch)  # 4
        if cfg.own == "sent" and ctx.federation.privacy is not None:
            do = through_clip(o, ctx.federation.privacy.clip, do)
        with torch.no_grad():
            head.weight.grad, dh = h.t() @ do, do @ head.weight.t()
        bottom.backward(dh)
        head.step()
        step()
        await evaluate(ctx, server, t, whole, partial(own.evaluation, t))
