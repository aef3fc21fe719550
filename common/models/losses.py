"""Losses ℓ(z, y) of a logit z and a target y, each with the minimiser that ADMM needs.

Every loss gives, for a batch of b samples with c logits, its value per sample, its gradient with respect to the logits,
and its proximal map. An `Objective`, which a federation trains by, adds the differentiable mean and the exact change
along a step.

**The proximal map of log-sum-exp**, to machine precision, for a whole batch at once. Minimising `logsumexp(z) + ρ/2 ‖z
− c‖²` over z asks for a distribution p with

    p_i + ρ log p_i = ρ (c_i − L)    and    Σ_i p_i = 1,    after which    z = c − p/ρ.

With w = p/ρ each class obeys `w_i + log w_i = c_i − log ρ − L`, which is Wright's ω function of the right-hand side
(Corless and Jeffrey, "The Wright ω function", 2002). So one number per sample is unknown, the level L. The function `Σ
ω(c_i − log ρ − L) − 1/ρ` is convex and decreasing in it: every Newton step lands on the left of the root or on it, and
from there converges monotonically. No line search, warm start or fallback is needed, for any ρ and c.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import logsigmoid, softplus

from colonnade.common.errors import InputError


class Loss(Protocol):
    """One loss ℓ(z, y), convex in z."""

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """ℓ(z_j, y_j) of every sample: logits (b, c) to (b,)."""
        ...

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        """∇_z ℓ(z_j, y_j) of every sample, not averaged: logits (b, c) to (b, c)."""
        ...

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """argmin_z ℓ(z, y_j) + ρ/2 ‖z − centre_j‖² of every sample: centre (b, c) to (b, c), ρ > 0."""
        ...


class Objective(Loss, Protocol):
    """A loss that a federation can be trained by."""

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean, a scalar to differentiate: logits (b, c)."""
        ...

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """ℓ(z_j + e, y_j) − ℓ(z_j, y_j) without cancellation: steps (b, q, c) at logits (b, c), float64 (b, q)."""
        ...


class CrossEntropy:
    """`logsumexp(z) − y'z`: softmax cross-entropy over c classes.

    Targets are class numbers, an integer tensor (b,), or distributions, a tensor (b, c) whose rows sum to 1 (soft
    labels). Raises `InputError` for any other shape and for a class number outside 0 .. c − 1.
    """

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.logsumexp(dim=-1) - (_distribution(targets, logits) * logits).sum(dim=-1)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.softmax(dim=-1) - _distribution(targets, logits)

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """z = centre + (y − p)/ρ with p = softmax(z), solved by `simplex_posterior`."""
        pull = _distribution(targets, centre)
        return centre + (pull - simplex_posterior(centre + pull / rho, rho)) / rho

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean by torch's own function, which can be differentiated row by row."""
        return functional.cross_entropy(logits, targets)

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """`log1p(Σ_c p_c expm1(e_c)) − y'e` with p = softmax(z), float64 (b, q)."""
        p, y = logits.softmax(dim=-1), _distribution(targets, logits)
        grown = torch.bmm(torch.expm1(step), p.unsqueeze(2)).squeeze(2)
        return torch.log1p(grown).double() - torch.bmm(step, y.unsqueeze(2)).squeeze(2).double()


class Logistic:
    """`log(1 + exp z) − y z`: logistic loss of one logit.

    Logits have shape (b, 1); targets are 0, 1 or a probability between, of shape (b,) or (b, 1).
    """

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return -(logsigmoid(-logits) + _column(targets, logits) * logits).squeeze(-1)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits.sigmoid() - _column(targets, logits)

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """z = centre + (y − p)/ρ with p = sigmoid(z).

        `log(1 + exp z) = z/2 + logsumexp(z/2, −z/2)`, so p is the first of two classes whose logits
        are ±z/2 under the penalty 2ρ.
        """
        pull = _column(targets, centre)
        half = (centre + (pull - 0.5) / rho) / 2.0
        posterior = simplex_posterior(torch.cat((half, -half), dim=-1), 2.0 * rho)
        return centre + (pull - posterior[..., :1]) / rho


class Squared:
    """`½ ‖z − y‖²`: squared loss. Targets have the shape of the logits, or (b,) where c = 1."""

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        return 0.5 * (logits - _column(targets, logits)).square().sum(dim=-1)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        return logits - _column(targets, logits)

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:
        """z = (y + ρ centre) / (1 + ρ)."""
        return (_column(targets, centre) + rho * centre) / (1.0 + rho)

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        return self.value(logits, targets).mean()

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:
        """`(z − y)'e + ½ ‖e‖²`, float64 (b, q)."""
        slope = self.gradient(logits, targets).double()
        return torch.bmm(step.double(), slope.unsqueeze(2)).squeeze(2) + 0.5 * step.double().square().sum(dim=-1)


class PoissonDeviance(Squared):
    """`2 (y log(y / m) - y + m)`, summed over targets, of positive means m instead of logits; only its value."""

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        m, y = logits.double().clamp_min(torch.finfo(torch.float32).tiny), targets.double()
        return 2 * (torch.xlogy(y, y / m) - y + m).sum(dim=-1)


LOSSES: Mapping[str, Loss] = MappingProxyType(
    {"cross_entropy": CrossEntropy(), "logistic": Logistic(), "squared": Squared()}
)

OBJECTIVES: Mapping[str, Objective] = MappingProxyType({"classification": CrossEntropy(), "regression": Squared()})
"""Training loss by the federation's task."""


def _distribution(targets: Tensor, logits: Tensor) -> Tensor:
    """Class numbers as one-hot rows; distributions unchanged. Shape and dtype of logits."""
    if targets.shape == logits.shape:
        return targets.to(logits.dtype)
    if targets.shape != logits.shape[:-1] or targets.is_floating_point():
        raise _misshapen(targets, logits, hint="give class numbers, or one distribution a row")
    classes = logits.shape[-1]
    if targets.numel() and not 0 <= int(targets.min()) <= int(targets.max()) < classes:
        found = f"{int(targets.min())} to {int(targets.max())}"
        raise InputError(
            f"class numbers run from {found}, the logits have {classes} classes",
            hint="number the classes from 0, and give the head as many outputs as there are classes",
        )
    return torch.zeros_like(logits).scatter_(-1, targets.long().unsqueeze(-1), 1.0)


def _column(targets: Tensor, logits: Tensor) -> Tensor:
    """Targets (b,) as a column (b, 1); targets of the logits' shape unchanged. Dtype of logits."""
    if targets.shape != logits.shape and (*targets.shape, 1) != tuple(logits.shape):
        raise _misshapen(targets, logits, hint="give one target a logit")
    return targets.reshape(logits.shape).to(logits.dtype)


def _misshapen(targets: Tensor, logits: Tensor, *, hint: str) -> InputError:
    return InputError(
        f"targets {targets.dtype} {tuple(targets.shape)} do not fit logits of shape {tuple(logits.shape)}",
        hint=hint,
    )


# Newton on the level takes 2 to 4 steps for ρ >= 0.1 and 8 at most for ρ down to 1e-6.
_MAX_STEPS = 64


def wright_omega(u: Tensor) -> Tensor:
    """The solution w > 0 of `w + log w = u`, elementwise, of the shape and dtype of u.

    Starts within 2 % (Iacono and Boyd, "New approximations to the principal real-valued branch of the Lambert
    W-function", 2017, Eq. 31) and squares the error with each Newton step; concavity of `w + log w` makes those steps
    safe. Relative error: about 1e-6 in float32, 1e-14 in float64. w is clamped to the dtype's smallest normal number.
    """
    info = torch.finfo(u.dtype)
    u = u.clamp_min(math.log(info.tiny) + 1.0)
    s = softplus(u)
    w = torch.addcdiv(s, s * torch.log1p(s), s + 2.0, value=-1.0)
    u_plus_1 = u + 1.0
    for _ in range(2 if info.bits <= 32 else 3):
        w = w * (u_plus_1 - w.log()) / (w + 1.0)
    return w


def simplex_posterior(centre: Tensor, rho: float) -> Tensor:
    """The softmax p of `argmin_z logsumexp(z) + ρ/2 ‖z − centre‖²`, (..., classes), for any ρ > 0.

    The minimiser is `centre − p/ρ`.
    """
    # Classes first: torch reduces over short rows several times slower than over their transpose.
    shifted = centre.movedim(-1, 0).contiguous()
    shifted = shifted - shifted.amax(dim=0)
    # p <= 1 in c_i − L = log p_i + p_i/ρ bounds L from below; the fixed point L = logsumexp(c − p/ρ),
    # iterated once from ρ = ∞, is near it when ρ is large, where the bound is loose in units of p.
    level = torch.sub(shifted, shifted.softmax(dim=0), alpha=1.0 / rho).exp().sum(dim=0).log()
    level = level.clamp_min(-1.0 / rho)
    shifted = shifted - math.log(rho)
    # A step of d leaves an error of at most min(1, ρ) d²/2 in p, because |g''| <= |g'|.
    tolerance = math.sqrt(torch.finfo(centre.dtype).eps / min(1.0, rho))
    for _ in range(_MAX_STEPS):
        w = wright_omega(shifted - level)
        slope = w / (w + 1.0)
        step = (w.sum(dim=0) - 1.0 / rho) / slope.sum(dim=0)
        level = level + step
        if not bool((step.abs() > tolerance).any()):
            break
    return (rho * (w - step * slope)).movedim(0, -1)
