"""Forward and backward through a party's bottom model, with protection and adjustment of its embeddings."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

from colonnade.common.config.run_options import AdjustConfig
from colonnade.common.models.backprop import Backprop, Stack, backprop, row_gradients
from colonnade.common.models.clusters import contrast, fuzzy_c_means
from colonnade.common.models.pairwise import normality
from colonnade.common.privacy.rows import NoisySteps
from colonnade.common.privacy.shaped import Shaped

_TINY = 1e-30  # gradients are small; 0 has no direction
_FIRST, _NEXT = 20, 1  # fuzzy c-means iterations: from scratch, and from the previous batch's centres
_MOST = 64  # rows in the contrastive term, the most certain of a batch: pairs grow quadratically


class ShapedBackprop:
    """`Backprop` of f by its fast implementation, and of the shaping after it by autograd."""

    def __init__(self, model: Shaped) -> None:
        self._body, self._shape = backprop(model.body), model.shape
        self._raw = self._shaped = torch.empty(0)

    def forward(self, inputs: Tensor) -> Tensor:
        self._raw = self._body.forward(inputs).detach().requires_grad_()
        with torch.enable_grad():
            self._shaped = self._shape(self._raw)
        return self._shaped.detach()

    def backward(self, gradient: Tensor) -> None:
        """Replaces every parameter's `grad`, given the gradient at the shaped embeddings."""
        (raw,) = torch.autograd.grad(self._shaped, self._raw, gradient)
        self._body.backward(raw)


class NoisyBackprop(ShapedBackprop):
    """`Backprop` that clips every row's gradient and adds noise to their mean; f must not mix rows of a batch."""

    def __init__(self, model: Shaped, noise: NoisySteps) -> None:
        super().__init__(model)
        self._model, self._noise = model.body, noise
        self._inputs = torch.empty(0)

    def forward(self, inputs: Tensor) -> Tensor:
        self._inputs = inputs
        return super().forward(inputs)

    def backward(self, gradient: Tensor) -> None:
        """Replaces every parameter's `grad`, given the gradient of the batch's mean loss at the embeddings."""
        rows = len(gradient)
        (raw,) = torch.autograd.grad(self._shaped, self._raw, gradient.nan_to_num(0.0, 0.0, 0.0) * rows)
        clipped = self._body.clipped(raw, self._noise.clip) if isinstance(self._body, Stack) else None
        means = self._noise.mean(self._each(raw)) if clipped is None else self._noise.mean_of(clipped, rows)
        for parameter, mean in zip(self._model.parameters(), means, strict=True):
            parameter.grad = mean

    def _each(self, raw: Tensor) -> list[Tensor]:
        """Every row's gradient by itself, (rows, *shape) each, for any model."""
        named = dict(self._model.named_parameters())
        if not len(raw):  # no row was drawn: noise alone
            return [parameter.new_zeros(0, *parameter.shape) for parameter in named.values()]

        def share(parameters: Mapping[str, Tensor], row: Tensor, pull: Tensor) -> Tensor:
            h: Tensor = functional_call(self._model, dict(parameters), (row.unsqueeze(0),))
            return (h[0] * pull).sum()

        _shares, each, _inputs = row_gradients(share, named, self._inputs, raw)
        return [each[name] for name in named]


class Adjusted:
    """`Backprop` that adds the gradients of the party's own terms: VFL-AFE, Algorithm 1, lines 16 to 18.

    The gradients' directions are clustered, from the `last` batch's centres in few iterations. Their lengths measure
    the server's error on a row: once the server learns, unscaled gradients (Eq. 7) cluster into short and long ones,
    regardless of the class.
    """

    def __init__(self, inner: Backprop, config: AdjustConfig, classes: int, last: dict[str, Tensor]) -> None:
        self._inner, self._config, self._classes, self._last = inner, config, classes, last
        self._h = torch.empty(0)

    def forward(self, inputs: Tensor) -> Tensor:
        self._h = self._inner.forward(inputs)
        return self._h

    def backward(self, gradient: Tensor) -> None:
        config, total = self._config, gradient
        if config.contrastive and len(gradient) >= self._classes:  # the last batch of an epoch may be smaller
            total = total + self._apart(gradient)
        if config.normality and len(gradient) > 1:
            total = total + config.normality * self._towards_normal()
        self._inner.backward(total)

    def _apart(self, gradient: Tensor) -> Tensor:
        """The gradient of Eq. 8, over the rows that the gradients' clusters (Eq. 7) assign with certainty."""
        directions, start = functional.normalize(gradient, dim=1, eps=_TINY), self._last.get("centres")
        start = None if start is None else start.to(directions.device)  # checkpoints are loaded on the CPU
        iterations = _FIRST if start is None else _NEXT
        found = fuzzy_c_means(directions, self._classes, start=start, iterations=iterations)
        self._last["centres"] = found.centres
        ids, confidences = found.assignments()
        least = max(self._config.confidence, float(confidences.topk(min(_MOST, len(confidences))).values[-1]))
        _value, pushes = contrast(self._h, ids, confidences >= least, self._config.contrastive)
        return pushes

    def _towards_normal(self) -> Tensor:
        h = self._h.detach().requires_grad_()
        with torch.enable_grad():
            (pull,) = torch.autograd.grad(normality(h), h)
        return pull
