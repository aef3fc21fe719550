"""The joint model above the cut: one head over all parties' embeddings side by side."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from common.models.optimiser import build_optimiser, stepper
from server.context import ServerContext
from server.heads import joint_head


class JointHead:
    """g(·; theta_0) with its optimiser, both in the half's state.

    Args:
        ctx: of the server's half.
        parties: in the cohort's order.
        width: of an embedding.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...], width: int) -> None:
        self._device, self._parties, self._width = ctx.device, parties, width
        self._head = ctx.state.keep("head", lambda: joint_head(ctx, width * len(parties)))
        parameters = self._head.parameters()
        self._optimiser = ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, parameters))
        self._step = stepper(self._optimiser)

    def backward(self, parts: list[Tensor], targets: Tensor) -> tuple[float, Mapping[str, Tensor]]:
        """The batch's mean cross-entropy, and its gradient dh_k at every party's embeddings.

        Args:
            parts: h_1 .. h_M, each float32 (rows, width).
            targets: int64 (rows,).
        """
        h = torch.cat(parts, dim=1).to(self._device).requires_grad_()  # (rows, M * width)
        loss = functional.cross_entropy(self._head(h), targets)
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        assert h.grad is not None  # h requires it
        return loss.item(), dict(zip(self._parties, torch.split(h.grad, self._width, dim=1), strict=True))

    def step(self) -> None:
        """One step of theta_0 down the gradient of the last `backward`."""
        self._step()

    def predict(self, parts: list[Tensor]) -> Tensor:
        """Logits, float32 (rows, classes), of a head that is evaluated."""
        self._head.eval()
        logits: Tensor = self._head(torch.cat(parts, dim=1).to(self._device))
        self._head.train()
        return logits
