"""The τ local steps of a VIMADMM party: Eq. 9 by stochastic gradient descent on one batch."""

from __future__ import annotations

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
    """Steps the model τ times down Eq. 9, in place: Algorithm 1, line 16.

    Eq. 9 is 1/b Σ_j λ_j' f(x_j; θ) W + ρ/2b Σ_j ‖s_j − f(x_j; θ) W‖²; its regulariser β R(θ) is the
    optimiser's weight decay.

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
    batch = backprop(model, inputs)
    head_t = head.t().contiguous()
    for _ in range(steps):
        logits = batch.forward() @ head
        batch.backward(local_gradient(logits, dual, residual, rho) @ head_t)
        optimiser.step()
    optimiser.zero_grad()
