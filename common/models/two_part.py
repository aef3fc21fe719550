"""A member's own model in two parts: embedding network and prediction network (VFedMH, Section 4.2)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from colonnade.common.models.backprop import backprop
from colonnade.common.models.optimiser import stepper


class TwoPart:
    """h(.; theta_k), (rows, ...) -> E_k (rows, width), and p(.; theta_k), (rows, width) -> R_k (rows, classes).

    The input of the prediction network need not be E_k alone: it may be an average that includes E_k.
    """

    def __init__(
        self,
        bottom: nn.Module,
        head: nn.Module,
        bottom_optimiser: torch.optim.Optimizer,
        head_optimiser: torch.optim.Optimizer,
    ) -> None:
        self._modules, self._bottom, self._head = (bottom, head), backprop(bottom), head
        self._steps: tuple[Callable[[], object], ...] = (stepper(bottom_optimiser), stepper(head_optimiser))
        self._given = self._logits = torch.empty(0)

    def embed(self, x: Tensor) -> Tensor:
        """E_k of a batch, detached."""
        return self._bottom.forward(x)

    def predict(self, e: Tensor) -> Tensor:
        """R_k of the embeddings E of a batch, detached."""
        self._given = e.detach().requires_grad_()
        with torch.enable_grad():
            self._logits = self._head(self._given)
        return self._logits.detach()

    def learn(self, dr: Tensor, share: float = 1.0) -> None:
        """One step of both optimisers, from the gradient at R_k, (rows, classes); `share` is dE / dE_k, 1/C for an
        average of C.
        """
        self._head.zero_grad(set_to_none=True)
        torch.autograd.backward(self._logits, dr)
        assert self._given.grad is not None  # autograd requires it
        self._bottom.backward(self._given.grad * share)
        for step in self._steps:
            step()

    def evaluation(self) -> TwoPartEvaluation:
        return TwoPartEvaluation(*self._modules)


class TwoPartEvaluation:
    """Both networks as they are evaluated: without dropout, without a graph, with batch norm's running statistics."""

    def __init__(self, bottom: nn.Module, head: nn.Module) -> None:
        self._bottom, self._head = bottom, head

    def __enter__(self) -> TwoPartEvaluation:
        self._bottom.eval()
        self._head.eval()
        return self

    def __exit__(self, *_: object) -> None:
        self._bottom.train()
        self._head.train()

    @torch.no_grad()
    def embed(self, x: Tensor) -> Tensor:
        e: Tensor = self._bottom(x)
        return e

    @torch.no_grad()
    def predict(self, e: Tensor) -> Tensor:
        r: Tensor = self._head(e)
        return r
