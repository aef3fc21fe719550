"""Messages of protocols in which parties send their own logits, of a batch or of held-out rows."""

from __future__ import annotations

from typing import Annotated

from colonnade.common.messaging.fields import Released
from colonnade.common.messaging.message import PartyMessage, TensorSpec, message


@message
class Logits(PartyMessage):
    """Party to server: o_k of the batch, float32 (rows, classes)."""

    o: Annotated[Released, TensorSpec("rows", "classes")]


@message
class Evaluation(PartyMessage):
    """Party to server: o_k of one block of the validation or test rows, float32 (rows, classes)."""

    part: str
    block: int
    o: Annotated[Released, TensorSpec("rows", "classes")]
