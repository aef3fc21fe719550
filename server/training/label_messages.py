"""Messages that send labels to the parties, for protocols that assume parties know them (FDML, C-VFL)."""

from __future__ import annotations

from torch import Tensor

from colonnade.common.messaging.label_messages import Beliefs, Labels, Targets
from colonnade.server.training.context import ServerContext


def label_message(ctx: ServerContext, round: int, y: Tensor) -> Labels | Beliefs | Targets:
    """A batch's labels as a message; y as returned by `ServerContext.targets`."""
    if ctx.scale is not None:
        return Targets(round, y.double())
    return Labels(round, y) if y.dim() == 1 else Beliefs(round, y)
