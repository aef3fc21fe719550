"""The joint model above the cut: one head over the weighted sum, or the concatenation, of all embeddings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.common.config.optimisers import SgdConfig
from colonnade.common.models.optimiser import build_optimiser, stepper
from colonnade.common.models.row_gradients import Parameters
from colonnade.server.privacy.response_noise import ResponseNoise
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.heads import joint_head
from colonnade.server.training.fusion.joint import Targets


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
        first = next((layer for layer in self._head.modules() if isinstance(layer, nn.Linear)), None)
        if first is None or first.in_features != self._inputs:
            return None
        if self._weights is None:
            return list(torch.split(first.weight.detach().T, self._width))
        return [weight * first.weight.detach().T for weight in self._weights.detach()]

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
