"""Messages of protocols in which parties send the embeddings of a batch and receive gradients at them."""

from __future__ import annotations

from typing import Annotated

from colonnade.common.messaging.fields import Released, Tensor
from colonnade.common.messaging.message import PartyMessage, ServerMessage, TensorSpec, message


@message
class Embedding(PartyMessage):
    """Party to server: h_k of the batch, float32 (rows, width)."""

    h: Annotated[Released, TensorSpec("rows", "width")]


@message
class Gradient(ServerMessage):
    """Server to party: the gradient of the batch's mean loss with respect to h_k, float32 (rows, width).

    Args:
        round: the embedding's round.
    """

    dh: Annotated[Tensor, TensorSpec("rows", "width")]


@message
class Evaluation(PartyMessage):
    """Party to server: h_k of one block of the validation or test rows, float32 (rows, width)."""

    part: str
    block: int
    h: Annotated[Released, TensorSpec("rows", "width")]
