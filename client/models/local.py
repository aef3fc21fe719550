"""A party's part of the joint model."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from colonnade.client.models.head import OwnHead
from colonnade.client.training.context import ClientContext


class WithWidth(Protocol):
    """The config of a protocol with a cut layer."""

    @property
    def embedding(self) -> int:
        """Width of a party's embedding."""


class Local(nn.Module):
    """Rows -> the party's outputs: embeddings, or logits if it has its own head.

    Args:
        model: theta_k, (rows, ...) -> (rows, width).
        head: W_k, or None where heads are the server's.
    """

    def __init__(self, model: nn.Module, head: OwnHead | None = None) -> None:
        super().__init__()
        self.model, self.head = model, head

    @property
    def weight(self) -> Tensor | None:
        """W_k, (width, classes)."""
        return None if self.head is None else self.head.weight.detach()

    def forward(self, x: Tensor) -> Tensor:
        """(rows, ...) -> (rows, width), or (rows, classes) with a head."""
        return self.answer(self.model(x))

    def answer(self, h: Tensor) -> Tensor:
        """Embeddings (rows, width) -> outputs."""
        return h if self.head is None else self.head(h)


def bottom(ctx: ClientContext, cfg: WithWidth) -> Local:
    """theta_k, restored from the state or newly initialised."""
    return Local(ctx.model(cfg.embedding))


def headed(ctx: ClientContext, cfg: WithWidth) -> tuple[Local, OwnHead]:
    """theta_k with W_k, and W_k by itself; both restored from the state or newly initialised."""
    head = OwnHead(ctx, cfg.embedding)
    return Local(ctx.model(cfg.embedding), head), head
