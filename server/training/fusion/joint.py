"""Server side of a joint model: from the parties' parts to logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from colonnade.common.models.optimiser import build_optimiser, stepper
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.heads import PartyHeads, joint_head
from colonnade.server.training.trees.forest import Forest

Targets = Callable[[Tensor], Tensor]  # logits -> the targets of the loss: ServerContext.targets


class Joint(Protocol):
    """Joint model on the server, used by training's evaluations and by predictions."""

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """Parts in roster order, float32 (rows, width) each -> logits (rows, classes)."""

    def heads(self) -> list[Tensor] | None:
        """The weights applied first to each party's part, (width, outputs) each; None if there are none."""


@runtime_checkable
class Summed(Joint, Protocol):
    """A joint model that needs only the sum of the parties' parts."""

    def of_sum(self, total: Tensor) -> Tensor:
        """Sum over all parties, float32 (rows, width) -> logits (rows, classes)."""


@runtime_checkable
class Decided(Protocol):
    """A forest, to which the parties say on which side of its splits a row is.

    Attributes:
        start: scores before the first tree, float64 (outputs,).
    """

    forest: Forest
    start: Tensor

    def of_sides(self, sides: Sequence[Tensor]) -> Tensor:
        """Packed bits in roster order, uint8 (rows, bytes) each -> logits (rows, classes)."""

    def bytes_of(self) -> list[int]:
        """Bytes of a row's sides, by party."""


class HeadSum:
    """sum_k g(h_k; W_k)."""

    def __init__(self, each: PartyHeads, device: torch.device) -> None:
        self.each, self._device = each, device

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        return self.each.logits(torch.stack(list(parts)).to(self._device)).sum(0)

    def heads(self) -> list[Tensor]:
        """W_1 .. W_M; for MLPs the first layers."""
        return self.each.first()


class LogitSum:
    """scale * sum_k o_k, for parties that hold their heads themselves; the scale is 1, or 1 / M for the mean."""

    def __init__(self, device: torch.device, scale: float = 1.0) -> None:
        self._device, self._scale = device, scale

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        total = torch.stack(list(parts)).sum(0).to(self._device)
        return total if self._scale == 1.0 else total * self._scale

    def of_sum(self, total: Tensor) -> Tensor:
        return self.logits([total])

    def heads(self) -> None:
        """None: the parties hold the heads."""


class JointHead:
    """g(.; theta_0), one head over all embeddings concatenated, and its optimiser, both in the state.

    `head` is the initial head, where its shape is agreed.
    """

    def __init__(self, ctx: ServerContext, width: int, head: nn.Module | None = None) -> None:
        self._device, self._parties, self._width = ctx.device, ctx.federation.names, width
        self._loss = ctx.loss
        make = lambda: joint_head(ctx, width * len(self._parties)) if head is None else head  # noqa: E731
        self._head: nn.Module = ctx.state.keep("head", make)
        parameters = self._head.parameters()
        self._optimiser = ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, parameters))
        self.step = stepper(self._optimiser)  # applies the gradient of the last `backward`

    def backward(self, parts: list[Tensor], targets: Targets) -> tuple[float, Mapping[str, Tensor]]:
        """The batch's mean loss, and its gradient dh_k by party; parts are h_1 .. h_M, each float32 (rows, width)."""
        h = torch.cat(parts, dim=1).to(self._device).requires_grad_()  # (rows, M * width)
        logits = self._head(h)
        loss = self._loss.mean(logits, targets(logits))
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        assert h.grad is not None  # h requires it
        return loss.item(), dict(zip(self._parties, torch.split(h.grad, self._width, dim=1), strict=True))

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """h_1 .. h_M -> the head's logits, without dropout."""
        self._head.eval()
        logits: Tensor = self._head(torch.cat(list(parts), dim=1).to(self._device))
        self._head.train()
        return logits

    def flat(self) -> Tensor:
        """A copy of theta_0 as one vector, layer by layer: weight (out, in), then bias if there is one."""
        return nn.utils.parameters_to_vector(self._head.parameters()).detach()

    def heads(self) -> list[Tensor] | None:
        """Each party's block of the first layer, if that is linear over all embeddings."""
        first = next((layer for layer in self._head.modules() if isinstance(layer, nn.Linear)), None)
        if first is None or first.in_features != len(self._parties) * self._width:
            return None
        return list(torch.split(first.weight.detach().T, self._width))
