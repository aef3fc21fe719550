"""A party's part of the joint model."""

from __future__ import annotations

from torch import Tensor, nn


class Local(nn.Module):
    """Rows -> what the party sends of them: embeddings, or logits where it has a head of its own.

    Args:
        model: theta_k, (rows, ...) -> (rows, width).
        head: W_k, (width, classes), or None where heads are the server's.
    """

    def __init__(self, model: nn.Module, head: nn.Parameter | None = None) -> None:
        super().__init__()
        self.model, self.head = model, head

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> (rows, width), or (rows, classes) with a head."""
        return self.answer(self.model(x))

    def answer(self, h: Tensor) -> Tensor:
        """The same, from the embeddings (rows, width)."""
        return h if self.head is None else h @ self.head
