"""Local steps between two exchanges, on one batch: Eq. 9 or Eqs. 22 and 23 of VIMADMM, FedBCD's, or C-VFL's.

Regularisers are the optimisers' weight decay. Common arguments:

    bottom     f, from (b, ...) inputs to (b, d) embeddings, forward and backward
    step       steps the optimiser over f's parameters θ; its momentum persists between rounds and in checkpoints
    inputs     x, the party's columns of the batch
    dual       λ^(t), (b, c)
    residual   s^k(t), (b, c)
    steps      τ, or Q

Steps that descend are shortened where they would raise the objective. Eq. 9 of VIMADMM is a quadratic in the party's
logits o, (λ'o + ρ/2 ‖o − s‖²) / b. A step −u that moves the logits by Δ, and lowers the objective by ⟨∇, u⟩ to first
order, is longest without overshooting at the share

    ⟨∇, u⟩ / (ρ/b ‖Δ‖²)

of u: an exact line search where logits are linear in the parameters. A batch's first step is at most half as long. A
later step that still raises the objective is taken back, and the next ones are a quarter as long. A learning rate that
is too large for a batch is thus reduced for it, by the data's own scale; a small one stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from colonnade.common.models.admm import head_gradients, local_gradient
from colonnade.common.models.backprop import Backprop

_FIRST, _NEXT, _TINY = 0.5, 0.25, 1e-12


class Descent:
    """Bounds the steps of optimisers over one batch after the other.

    Args:
        optimisers: those that step together. Only `torch.optim.SGD` is bounded: the others scale gradients by
            themselves.
        buffers: the model's, such as the running statistics of a batch norm, which every forward pass in training
            changes. A step that is tried or taken back restores them.

    Attributes:
        share: factor for this batch's gradients, in (0, 1].
    """

    def __init__(self, *optimisers: torch.optim.Optimizer, buffers: Iterable[Tensor] = ()) -> None:
        self._applies = all(isinstance(optimiser, torch.optim.SGD) for optimiser in optimisers)
        self._optimisers, self._buffers = optimisers, tuple(buffers)
        self._kept: Sequence[tuple[Tensor, Tensor]] = ()
        self.share, self._value = 1.0, math.inf

    @torch.no_grad()
    def begin(self, before: Tensor, logits: Callable[[], Tensor], rho: float) -> None:
        """Sets the share for a batch. Removes momentum that points uphill.

        Args:
            before: o at the current parameters, whose gradients are in `grad`, (b, c).
            logits: recomputes o; called once, at the parameters after a whole step, which are then restored.
            rho: ρ.
        """
        self.share, self._value, self._kept = 1.0, math.inf, ()
        if not self._applies:
            return
        moving = self._moving()
        if sum(one.towards() for one in moving) < 0:
            self._forget(moving)
        kept = self._copies(moving)
        gain = sum(one.advance() for one in moving)
        change = float((logits() - before).square().sum()) * rho / len(before)
        _restore(kept)
        if not math.isfinite(change):
            self.share = _TINY
        elif change > _FIRST * gain:
            self.share = max(_FIRST * gain / change, _TINY)
        if self.share < 1:
            for one in moving:
                one.scale_past(self.share)

    @torch.no_grad()
    def shorten(self) -> None:
        if self.share < 1:
            for one in self._moving():
                one.gradient.mul_(self.share)

    @torch.no_grad()
    def keep(self) -> None:
        """Remembers the parameters and buffers before a step."""
        if self._applies:
            self._kept = self._copies(self._moving())

    @torch.no_grad()
    def descended(self, value: Tensor) -> bool:
        """True unless the last step raised the objective to `value`; then takes it back and shortens the next ones."""
        if not self._applies:
            return True
        now = float(value)
        if now <= self._value:  # False for a NaN
            self._value = now
            return True
        if not self._kept:  # before the first step
            return True
        _restore(self._kept)
        self._forget(self._moving())
        self.share *= _NEXT
        return False

    def _copies(self, moving: Sequence[_Moving]) -> list[tuple[Tensor, Tensor]]:
        return [(tensor, tensor.clone()) for tensor in (*(one.parameter for one in moving), *self._buffers)]

    def _moving(self) -> list[_Moving]:
        return [
            _Moving(parameter, group, optimiser.state.get(parameter, {}).get("momentum_buffer"))
            for optimiser in self._optimisers
            for group in optimiser.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]

    def _forget(self, moving: Sequence[_Moving]) -> None:
        for one in moving:
            one.scale_past(0.0)


def _restore(copies: Sequence[tuple[Tensor, Tensor]]) -> None:
    for tensor, copy in copies:
        tensor.copy_(copy)


class _Moving:
    """A parameter and its next step, lr (∇ + μ past)."""

    def __init__(self, parameter: Tensor, group: Mapping[str, Any], past: Tensor | None) -> None:
        assert parameter.grad is not None  # `_moving` selects these
        self.parameter, self.gradient, self._past = parameter, parameter.grad, past
        self._rate, self._momentum = float(group["lr"]), float(group["momentum"])

    def towards(self) -> float:
        """First-order gain of the momentum's part of the step."""
        return 0.0 if self._past is None else self._rate * self._momentum * float((self.gradient * self._past).sum())

    def advance(self) -> float:
        step = self.gradient if self._past is None else self.gradient.add(self._past, alpha=self._momentum)
        self.parameter.sub_(step, alpha=self._rate)
        return self._rate * float((self.gradient * step).sum())

    def scale_past(self, share: float) -> None:
        if self._past is not None:
            self._past.mul_(share) if share else self._past.zero_()


def local_steps(
    bottom: Backprop,
    step: Callable[[], None],
    inputs: Tensor,
    *,
    head: Tensor,
    dual: Tensor,
    residual: Tensor,
    rho: float,
    steps: int,
    descent: Descent | None = None,
) -> None:
    """Steps the bottom model τ times down Eq. 9, in place: Algorithm 1, lines 15 and 16.

    Eq. 9 is 1/b Σ_j λ_j' f(x_j; θ) W + ρ/2b Σ_j ‖s_j − f(x_j; θ) W‖².

    Args:
        head: W_k^(t+1), shape (d, c).
        descent: shortens steps that would raise the objective; None for the optimiser's own.
    """
    if descent is not None:
        head_t = head.t().contiguous()
        _descend(
            descent, step, dual=dual, residual=residual, rho=rho, steps=steps,
            logits=lambda: bottom.forward(inputs) @ head, backward=lambda signal: bottom.backward(signal @ head_t),
        )  # fmt: skip
        return
    # Eq. 9's gradient is affine in the logits, and only the logits change from step to step.
    constant = local_gradient(torch.zeros_like(dual), dual, residual, rho)
    slope, head_t = rho / dual.shape[0], head.t().contiguous()
    gradient = head.new_empty((dual.shape[0], head.shape[0]))
    for _ in range(steps):
        signal = torch.addmm(constant, bottom.forward(inputs), head, alpha=slope)
        bottom.backward(torch.mm(signal, head_t, out=gradient))
        step()


def headed_local_steps(
    bottom: Backprop,
    step: Callable[[], None],
    head: nn.Module,
    inputs: Tensor,
    *,
    dual: Tensor,
    residual: Tensor,
    rho: float,
    steps: int,
) -> None:
    """`local_steps` through any head g(h; W_k), Section III-B(d): Eq. 9 with g(f(x; θ); W) for f(x; θ) W.

    Args:
        head: g with W_k, (b, d) to (b, c), in its current mode; dropout draws anew in every step. Its parameters do not
            change.
    """
    for _ in range(steps):
        with torch.enable_grad():
            h = bottom.forward(inputs).detach().requires_grad_()
            logits = head(h)
        (gradient,) = torch.autograd.grad(logits, h, local_gradient(logits.detach(), dual, residual, rho))
        bottom.backward(gradient)
        step()


def joint_local_steps(
    bottom: Backprop,
    step: Callable[[], None],
    head: nn.Parameter,
    head_step: Callable[[], None],
    inputs: Tensor,
    *,
    dual: Tensor,
    residual: Tensor,
    rho: float,
    steps: int,
    descent: Descent | None = None,
) -> None:
    """Steps head and bottom model τ times in turn, in place: Algorithm 3, lines 15 and 16.

    Each time one step on W by Eq. 22 at the bottom model's current embeddings, then one on θ by Eq. 23 at the new W.

    Args:
        head: W_k, shape (d, c).
        head_step: steps the optimiser over W_k.
        descent: as in `local_steps`, for both optimisers; both then step at once.
    """
    weight = head.detach()
    if descent is not None:
        h = torch.empty(0)

        def logits() -> Tensor:
            nonlocal h
            h = bottom.forward(inputs)
            return h @ weight

        def backward(signal: Tensor) -> None:
            head.grad = head_gradients(h, weight, signal)
            bottom.backward(signal @ weight.t())

        def both() -> None:
            head_step()
            step()

        _descend(
            descent, both, dual=dual, residual=residual, rho=rho, steps=steps, logits=logits, backward=backward
        )  # fmt: skip
        return
    for _ in range(steps):
        h = bottom.forward(inputs)
        head.grad = head_gradients(h, weight, local_gradient(h @ weight, dual, residual, rho))
        head_step()
        bottom.backward(local_gradient(h @ weight, dual, residual, rho) @ weight.t())
        step()


def _descend(
    descent: Descent,
    step: Callable[[], None],
    *,
    dual: Tensor,
    residual: Tensor,
    rho: float,
    steps: int,
    logits: Callable[[], Tensor],
    backward: Callable[[Tensor], None],
) -> None:
    """τ steps of Eq. 9 that do not raise it."""

    def objective(o: Tensor) -> Tensor:
        return ((dual * o).sum() + rho / 2 * (o - residual).square().sum()) / len(o)

    o = logits()
    backward(local_gradient(o, dual, residual, rho))
    descent.begin(o, logits, rho)
    for _ in range(steps):
        o = logits()
        if not descent.descended(objective(o)):
            o = logits()
        backward(local_gradient(o, dual, residual, rho) * descent.share)
        descent.keep()
        step()
    descent.descended(objective(logits()))


def stale_steps(bottom: Backprop, step: Callable[[], None], inputs: Tensor, gradient: Tensor, *, steps: int) -> None:
    """Steps the bottom model τ times, in place, along one fixed gradient at its embeddings, (b, d): FedBCD.

    Embeddings and the backward pass change from step to step; the gradient at the cut layer stays that of the exchange.
    The last `bottom.forward` must have used these inputs and the current parameters.
    """
    for number in range(steps):
        if number:  # the first step uses the forward pass that made the embeddings
            bottom.forward(inputs)
        bottom.backward(gradient.clone())  # which consumes it
        step()


def lone_steps(
    bottom: Backprop,
    step: Callable[[], None],
    embeddings: Tensor,
    inputs: Tensor,
    logits: Callable[[Tensor], Tensor],
    loss: Callable[[Tensor], Tensor],
    *,
    steps: int,
) -> None:
    """Steps the bottom model Q times, in place, down the joint loss with all other parts fixed: C-VFL.

    Args:
        embeddings: h, (b, d), result of the last `bottom.forward`, with these inputs and the current parameters.
        logits: the joint model, (b, d) -> (b, c), given the others' part; its parameters do not change.
        loss: (b, c) -> the batch's mean loss.
    """
    for number in range(steps):
        if number:
            embeddings = bottom.forward(inputs)
        with torch.enable_grad():
            h = embeddings.detach().requires_grad_()
            value = loss(logits(h))
        (gradient,) = torch.autograd.grad(value, h)
        bottom.backward(gradient)
        step()
