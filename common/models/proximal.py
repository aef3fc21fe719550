"""The proximal map of log-sum-exp, to machine precision, for a whole batch at once.

Minimising `logsumexp(z) + ρ/2 ‖z − c‖²` over z asks for a distribution p with

    p_i + ρ log p_i = ρ (c_i − L)    and    Σ_i p_i = 1,    after which    z = c − p/ρ.

With w = p/ρ each class obeys `w_i + log w_i = c_i − log ρ − L`, which is Wright's ω function of the right-hand side
(Corless and Jeffrey, "The Wright ω function", 2002). So one number per sample is unknown, the level L. The function `Σ
ω(c_i − log ρ − L) − 1/ρ` is convex and decreasing in it: every Newton step lands on the left of the root or on it, and
from there converges monotonically. No line search, warm start or fallback is needed, for any ρ and c.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

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
    """The softmax p of `argmin_z logsumexp(z) + ρ/2 ‖z − centre‖²`; the minimiser is `centre − p/ρ`.

    Args:
        centre: c, shape (..., classes).
        rho: ρ > 0, any magnitude.

    Returns:
        p, positive and summing to 1 over the last axis, shape (..., classes).
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
