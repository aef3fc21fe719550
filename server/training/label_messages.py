"""Label messages to the parties, where a protocol supposes that they have the labels (FDML, C-VFL)."""

from __future__ import annotations

from torch import Tensor

from colonnade.common.messaging.label_messages import Beliefs, Labels, Targets
from colonnade.server.training.context import ServerContext


def label_message(ctx: ServerContext, round: int, y: Tensor) -> Labels | Beliefs | Targets:
    """The message of a batch's labels, for every party of the round.

    Args:
        y: the targets of the loss, as `ServerContext.targets` returns them.
    """
    if ctx.scale is not None:
        return Targets(round, y.double())
    return Labels(round, y) if y.dim() == 1 else Beliefs(round, y)
