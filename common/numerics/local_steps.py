"""The τ local steps of a VIMADMM party: Eq. 9 by stochastic gradient descent on one batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from common.numerics.admm import local_gradient
from common.numerics.backprop import backprop


def local_steps(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    inputs: Tensor,
    *,
    head: Tensor,
    dual: Tensor,
    residual: Tensor,
    rho: float,
    steps: int,
) -> None:
    """Steps the model τ times down Eq. 9, in place: Algorithm 1, lines 15 and 16.

    Eq. 9 is 1/b Σ_j λ_j' f(x_j; θ) W + ρ/2b Σ_j ‖s_j − f(x_j; θ) W‖²; its regulariser β R(θ) is the
    optimiser's weight decay. Fastest for a model that `backprop` differentiates by hand under
    `torch.optim.SGD(..., fused=True)`; exact for any model and optimiser.

    Args:
        model: f, from (b, ...) inputs to (b, d) embeddings.
        optimiser: over the model's parameters. Momentum is its own state, so that it lives on
            between rounds and in checkpoints.
        inputs: x, the party's columns of the batch.
        head: W_k^(t+1), shape (d, c).
        dual: λ^(t), shape (b, c).
        residual: s^k(t), shape (b, c).
        rho: ρ.
        steps: τ.
    """
    # Eq. 9's gradient is affine in the logits, and only the logits change from step to step.
    constant = local_gradient(torch.zeros_like(dual), dual, residual, rho)
    slope, head_t = rho / dual.shape[0], head.t().contiguous()
    gradient = head.new_empty((dual.shape[0], head.shape[0]))
    batch, step = backprop(model, inputs), _stepper(optimiser)
    for _ in range(steps):
        signal = torch.addmm(constant, batch.forward(), head, alpha=slope)
        batch.backward(torch.mm(signal, head_t, out=gradient))
        step()
    optimiser.zero_grad()


def _stepper(optimiser: torch.optim.Optimizer) -> Callable[[], None]:
    """`optimiser.step`, whose bookkeeping takes a tenth of a local step, or `_FusedSgd` in its place."""
    group, *more = optimiser.param_groups
    plain = isinstance(optimiser, torch.optim.SGD) and not more and group["fused"] and group["momentum"]
    if plain and all(parameter.device.type == "cpu" for parameter in group["params"]):
        return _FusedSgd(optimiser).step
    return optimiser.step


class _FusedSgd:
    """The kernel under `torch.optim.SGD(..., fused=True).step`, on that optimiser's own state."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser, (group,) = optimiser, optimiser.param_groups
        self._parameters: list[Tensor] = group["params"]
        self._buffers: list[Tensor] = []
        names = ("lr", "momentum", "weight_decay", "dampening", "nesterov", "maximize")
        self._settings = {name: group[name] for name in names}

    def step(self) -> None:
        """The first by the optimiser itself, which makes the momentum buffers; the others on those."""
        grads = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        if len(self._buffers) == len(grads) == len(self._parameters):
            with torch.no_grad():
                torch._fused_sgd_(self._parameters, grads, self._buffers, is_first_step=False, **self._settings)
            return
        self._optimiser.step()
        states = [self._optimiser.state.get(parameter, {}) for parameter in self._parameters]
        self._buffers = [state["momentum_buffer"] for state in states if "momentum_buffer" in state]
