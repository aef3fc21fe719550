"""Local steps that descend: SGD whose steps are shortened where they would raise the objective.

Eq. 9 of VIMADMM is a quadratic in the party's logits o, (λ'o + ρ/2 ‖o − s‖²) / b. A step −u that moves the logits by Δ,
and lowers the objective by ⟨∇, u⟩ to first order, is longest without overshooting at the share

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
from torch import Tensor

_FIRST, _NEXT, _TINY = 0.5, 0.25, 1e-12


class Descent:
    """Bounds the steps of optimisers over one batch after the other.

    Args:
        optimisers: of the parameters that step together. Only `torch.optim.SGD` is bounded: the others scale gradients
            by themselves.
        buffers: of the model, such as the running statistics of a batch norm, which every forward pass in training
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
