"""Label messages from the server, in protocols that assume that parties have the labels (FDML, C-VFL)."""

from __future__ import annotations

from torch import Tensor

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import Link
from colonnade.common.messaging.label_messages import LABEL_MESSAGES, Beliefs, Labels, Targets
from colonnade.common.messaging.message import Message


async def receive_labels(ctx: ClientContext, server: Link, round: int, rows: int) -> Tensor | None:
    """Receives y of the batch, the targets of the loss; None if the server has moved on.

    Classes, int64 (rows,); for protected labels, which only the server knows to be protected, distributions over the
    classes, float32 (rows, classes); in a regression the standardised numbers, float64 (rows, targets).
    """
    wide = {"rows": rows, "classes": ctx.federation.outputs}
    regression = ctx.federation.task == "regression"
    kinds: dict[type[Message], dict[str, int]] = (
        {Targets: wide} if regression else {Labels: {"rows": rows}, Beliefs: wide}
    )
    came = await server.recv_one(kinds, round)
    return came.y.to(ctx.device) if isinstance(came, LABEL_MESSAGES) else None
