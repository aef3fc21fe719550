"""What parties are told of the labels of a batch, where a protocol supposes that they have them (FDML, C-VFL)."""

from __future__ import annotations

from torch import Tensor

from colonnade.common.messaging.label_messages import Beliefs, Labels, Targets
from colonnade.server.training.context import ServerContext


def label_message(ctx: ServerContext, round: int, y: Tensor) -> Labels | Beliefs | Targets:
    """The message of a batch's labels, which every party of the round is sent.

    Args:
        y: what the loss takes for them, as `ServerContext.targets` gives it.
    """
    if ctx.scale is not None:
        return Targets(round, y.double())
    return Labels(round, y) if y.dim() == 1 else Beliefs(round, y)
