"""The joint model above the cut: one head over an embedding combined from all parties'."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.common.models.optimiser import build_optimiser, stepper
from colonnade.common.models.row_gradients import Parameters
from colonnade.server.privacy.response_noise import ResponseNoise
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.heads import joint_head
from colonnade.server.training.fusion.joint import Targets

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
        first = next((layer for layer in self.head.modules() if isinstance(layer, nn.Linear)), None)
        if self._how != "concatenate" or first is None or first.in_features != self._parties * self._width:
            return None
        return list(torch.split(first.weight.detach().T, self._width))

    def _loss_of_row(self, parameters: Parameters, h: Tensor, target: Tensor) -> Tensor:
        """Loss of one row, from the head's input (inputs,) and its target ()."""
        logits = functional_call(self.head, dict(parameters), (h.unsqueeze(0),))
        return self.loss.mean(logits, target.unsqueeze(0))
