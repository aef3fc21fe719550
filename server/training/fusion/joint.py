"""Server side of a joint model: from the parties' parts to logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.common.config.optimisers import SgdConfig
from colonnade.common.models.backprop import Parameters
from colonnade.common.models.optimiser import build_optimiser, stepper
from colonnade.server.privacy import ResponseNoise
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
    """A forest; parties report the side of each row at its splits.

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
        first = _first_layer(self._head, len(self._parties) * self._width)
        return None if first is None else list(torch.split(first, self._width))


def _first_layer(head: nn.Module, inputs: int) -> Tensor | None:
    """Weights (inputs, outputs) of a head's first linear layer; None if there is none over all inputs."""
    first = next((layer for layer in head.modules() if isinstance(layer, nn.Linear)), None)
    return None if first is None or first.in_features != inputs else first.weight.detach().T


How = Literal["average", "max", "concatenate"]

# h_1 .. h_n (n, rows, width) -> H (rows, width), or (rows, n * width) if concatenated.
COMBINE: Mapping[How, Callable[[Tensor], Tensor]] = {
    "average": lambda h: h.mean(0),
    "max": lambda h: h.amax(0),
    "concatenate": lambda h: h.movedim(0, 1).flatten(1),
}


class CombinedHead:
    """g(H; theta_0) and its optimiser, both in the state. An average or maximum H accepts any number of embeddings."""

    def __init__(self, ctx: ServerContext, width: int, how: How) -> None:
        self._device, self._how, self._parties, self._width = ctx.device, how, len(ctx.federation.names), width
        self.loss = ctx.loss
        inputs = width * self._parties if how == "concatenate" else width
        self.head: nn.Module = ctx.state.keep("head", lambda: joint_head(ctx, inputs))
        parameters = self.head.parameters()
        self._optimiser = ctx.state.keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, parameters))
        self.step = stepper(self._optimiser)  # applies the gradient of the last `backward`

    def backward(self, parts: Sequence[Tensor], targets: Targets) -> tuple[float, Sequence[Tensor], int]:
        """The batch's mean loss, its gradients dh_1 .. dh_n, float32 (rows, width), and their divisor, 1.

        For an average, the gradient at H replaces each dh_k, and the divisor is n. `parts` are h_1 .. h_n, of dh's
        shape.
        """
        h = torch.stack(list(parts)).to(self._device)
        averaged = self._how == "average"
        leaf = (h.mean(0) if averaged else h).requires_grad_()
        logits = self.head(leaf if averaged else COMBINE[self._how](leaf))
        loss = self.loss.mean(logits, targets(logits))
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        assert leaf.grad is not None  # the leaf requires it
        return (loss.item(), [leaf.grad] * len(h), len(h)) if averaged else (loss.item(), list(leaf.grad), 1)

    def protected(self, parts: Sequence[Tensor], targets: Targets, batch: Tensor, noise: ResponseNoise) -> float:
        """The batch's mean loss, which stays on the server; the gradient of the head's parameters gets noise.

        Raises InputError if the head cannot be differentiated row by row.
        """
        named = dict(self.head.named_parameters())
        loss, _ = noise.descend(self._loss_of_row, named, self.combined(parts), targets(self.logits(parts)), batch)
        return loss

    def combined(self, parts: Sequence[Tensor]) -> Tensor:
        return COMBINE[self._how](torch.stack(list(parts)).to(self._device))

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """h_1 .. h_n -> the head's logits, without dropout."""
        self.head.eval()
        logits: Tensor = self.head(self.combined(parts))
        self.head.train()
        return logits

    def of_sum(self, total: Tensor) -> Tensor:
        return self.logits([total / self._parties])

    def heads(self) -> list[Tensor] | None:
        """Each party's block of the first layer, if embeddings are concatenated; else None."""
        first = _first_layer(self.head, self._parties * self._width) if self._how == "concatenate" else None
        return None if first is None else list(torch.split(first, self._width))

    def _loss_of_row(self, parameters: Parameters, h: Tensor, target: Tensor) -> Tensor:
        """Loss of one row, from the head's input (inputs,) and its target ()."""
        logits = functional_call(self.head, dict(parameters), (h.unsqueeze(0),))
        return self.loss.mean(logits, target.unsqueeze(0))


class WeightedHead:
    """g(sum_k a_k h_k; theta_0), or g([h_1 .. h_M]; theta_0), and its optimisers, all in the state.

    Every weight a_k starts at 1 / M and takes plain gradient steps of `weights_lr`; None to concatenate, without
    weights. `module` maps h (M, rows, width) to logits (rows, classes), with all parameters.
    """

    def __init__(self, ctx: ServerContext, parties: int, width: int, weights_lr: float | None) -> None:
        keep = ctx.state.keep
        self._device, self._width, self._loss = ctx.device, width, ctx.loss
        self._inputs = width * parties if weights_lr is None else width
        self._head = keep("head", lambda: joint_head(ctx, self._inputs))
        parameters = self._head.parameters()
        self._optimisers = [keep("optimiser", lambda: build_optimiser(ctx.config.optimiser, parameters))]
        self._weights: nn.Parameter | None = None
        if weights_lr is not None:
            config = SgdConfig(lr=weights_lr, momentum=0, weight_decay=0)
            weights = keep("weights", lambda: nn.Parameter(torch.full((parties,), 1 / parties, device=ctx.device)))
            self._optimisers.append(keep("weights optimiser", lambda: build_optimiser(config, [weights])))
            self._weights = weights
        self.module = _SideBySide(self._head) if self._weights is None else _WeightedSum(self._weights, self._head)
        self._steps = [stepper(optimiser) for optimiser in self._optimisers]

    def backward(self, parts: list[Tensor], targets: Targets) -> tuple[float, Tensor]:
        """The batch's mean loss, and its gradients dh_1 .. dh_M, float32 (M, rows, width); `parts` are h_1 .. h_M."""
        h = torch.stack(parts).to(self._device).requires_grad_()
        logits = self._logits(h)
        loss = self._loss.mean(logits, targets(logits))
        for optimiser in self._optimisers:
            optimiser.zero_grad()
        torch.autograd.backward(loss)
        assert h.grad is not None  # h requires it
        return loss.item(), h.grad

    def protected(
        self, parts: list[Tensor], targets: Targets, batch: Tensor, indices: Sequence[int], noise: ResponseNoise
    ) -> tuple[float, Mapping[int, Tensor]]:
        """As `backward`, with noise on everything that depends on labels except the loss, which stays on the server.

        One release is counted for every response (a party of `indices`) and one for the step. Returns the loss, and
        dh_k by party index, float32 (rows, width). Raises InputError if the head cannot be differentiated row by row.
        """
        h = torch.stack(parts, dim=1).to(self._device)  # (rows, M, width)
        named = dict(self.module.named_parameters())
        loss, at_h = noise.descend(self._loss_of_row, named, h, targets(self.logits(parts)), batch)
        return loss, {index: noise.rows(at_h[:, index], batch) / len(batch) for index in indices}

    def step(self) -> None:
        for step in self._steps:
            step()

    def logits(self, parts: Sequence[Tensor]) -> Tensor:
        """h_1 .. h_M -> the head's logits, without dropout."""
        self._head.eval()
        logits = self._logits(torch.stack(list(parts)).to(self._device))
        self._head.train()
        return logits

    def heads(self) -> list[Tensor] | None:
        """The first layer applied to each party's embedding, if linear: scaled by a_k, or its block if concatenated."""
        if (first := _first_layer(self._head, self._inputs)) is None:
            return None
        if self._weights is None:
            return list(torch.split(first, self._width))
        return [weight * first for weight in self._weights.detach()]

    def _logits(self, h: Tensor) -> Tensor:
        logits: Tensor = self.module(h)
        return logits

    def _loss_of_row(self, parameters: Parameters, h: Tensor, target: Tensor) -> Tensor:
        """Loss of one row, from its h (M, width) and its target ()."""
        logits = functional_call(self.module, dict(parameters), (h.unsqueeze(1),))
        return self._loss.mean(logits, target.unsqueeze(0))


class _WeightedSum(nn.Module):
    def __init__(self, weights: nn.Parameter, head: nn.Module) -> None:
        super().__init__()
        self.weights, self.head = weights, head

    def forward(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.tensordot(self.weights, h, dims=1))
        return logits


class _SideBySide(nn.Module):
    """As `_WeightedSum`, with the embeddings concatenated and no weights."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.head = head

    def forward(self, h: Tensor) -> Tensor:
        logits: Tensor = self.head(h.movedim(0, 1).flatten(1))
        return logits
