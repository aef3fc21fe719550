"""Label messages: a batch's labels, sent to parties in protocols that assume they hold them (FDML, C-VFL).

A batch has one of three messages: a party that was away needs no earlier one.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from colonnade.common.messaging.fields import Tensor
from colonnade.common.messaging.message import Alike, ServerMessage, TensorSpec, message


@message
class Labels(ServerMessage):
    """Server to party: the classes of the batch's rows, int64 (rows,). They are hidden from no party."""

    alike: ClassVar[Alike | None] = Alike(("y",))

    y: Annotated[Tensor, TensorSpec("rows", dtype="int64")]


@message
class Beliefs(ServerMessage):
    """Server to party, where labels are protected: distributions over the classes, float32 (rows, classes).

    The posterior given noisy labels and the model: all that the server itself learns from.
    """

    alike: ClassVar[Alike | None] = Alike(("y",))

    y: Annotated[Tensor, TensorSpec("rows", "classes")]


@message
class Targets(ServerMessage):
    """Server to party, in a regression: the numbers to be predicted, standardised, float64 (rows, classes).

    `federation.compress` applies to float32 only, so they are sent uncompressed.
    """

    alike: ClassVar[Alike | None] = Alike(("y",))

    y: Annotated[Tensor, TensorSpec("rows", "classes", dtype="float64")]


LABEL_MESSAGES = (Labels, Beliefs, Targets)


def label_message(round: int, y: Tensor, *, regression: bool) -> Labels | Beliefs | Targets:
    """A batch's labels as a message; y as returned by `ServerContext.targets`."""
    if regression:
        return Targets(round, y.double())
    return Labels(round, y) if y.dim() == 1 else Beliefs(round, y)
