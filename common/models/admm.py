"""Steps of VIMADMM as functions of tensors.

Source: Xie et al., "Improving Privacy-Preserving Vertical Federated Learning by Efficient Communication with ADMM"
(VIMADMM), Algorithm 1 and Eqs. 4 to 9. For a batch of b samples, c logits and M parties with embeddings of d entries,
the augmented Lagrangian of Eq. 4 is

    1/b Σ_j  ℓ(z_j, y_j) + λ_j'(ŷ_j − z_j) + ρ/2 ‖ŷ_j − z_j‖²,      ŷ_j = Σ_k h_j^k W_k,

and each function below is one exact minimisation or one gradient of it. Names and symbols:

    total      ŷ     (b, c)     sum of all parties' logits h^k W_k
    auxiliary  z     (b, c)     stands for ŷ in the loss
    dual       λ     (b, c)     price of ŷ − z; after Eq. 6 (γ = 1) it equals ∇_z ℓ(z, y)
    residual   s^k   (b, c)     part of z left to party k
    embeddings h     (M, b, d)  or (b, d) for one party
    heads      W     (M, d, c)  or (d, c) for one party
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.models.losses import Loss

_MOST_ITERATIONS, _SETTLED = 64, 1e-5  # relative to 1 and the logits; for ρ = 1 a dozen iterations are typical


def minimise_z(targets: Tensor, dual: Tensor, total: Tensor, rho: float, loss: Loss) -> Tensor:
    """Eq. 5: argmin_z ℓ(z, y) − λ'z + ρ/2 ‖ŷ − z‖², exact to the dtype's precision.

    The minimiser is unique and depends on nothing else, so no starting point is needed. A row with a NaN gives NaN.

    Args:
        targets: y, of the shape the loss asks for, such as class numbers (b,).
        rho: ρ > 0.
    """
    if not rho > 0:
        raise InputError(f"rho is {rho}, it must be above 0", hint="the paper searches 0.5, 1 and 2")
    return loss.proximal(total + dual / rho, targets, rho)


def minimise_released_z(
    targets: Callable[[Tensor], Tensor], dual: Tensor, total: Tensor, rho: float, loss: Loss
) -> Tensor:
    """Eq. 5 where a noisy release takes the place of y: argmin_z −log Σ_c p_c L_c − λ'z + ρ/2 ‖ŷ − z‖², p = softmax(z).

    L_c is the probability of the release if the class were c (forward correction: Patrini et al., "Making deep neural
    networks robust to label noise", 2017). −log Σ_c p_c L_c = logsumexp(z) − logsumexp(z + log L) is cross-entropy less
    a convex function, whose tangent at the newest z majorises: the next z is Eq. 5 with the posterior softmax(z + log
    L) as y (expectation-maximisation). The objective falls with every iteration. Its Hessian is Cov(p) + ρ I − Cov(q)
    for the posterior q, and no covariance of a one-hot vector has an eigenvalue above 1/2: for ρ > 1/2 it is strictly
    convex, the minimiser unique, and errors shrink by 1 / 2ρ or better each time. For a smaller ρ the result is a
    stationary point, no higher than `minimise_z` at the posterior of ŷ.

    Args:
        targets: logits (b, c) to the posterior (b, c) with softmax(logits) as the prior.
    """
    z, limit = total, _SETTLED * (1 + total.abs())
    for _ in range(_MOST_ITERATIONS):
        before, z = z, minimise_z(targets(z), dual, total, rho, loss)
        if not bool(((z - before).abs() > limit).any()):  # false where it is not a number
            break
    return z


def update_dual(dual: Tensor, total: Tensor, auxiliary: Tensor, rho: float, step: float = 1.0) -> Tensor:
    """Eq. 6: λ^(t) = λ^(t−1) + γ ρ (ŷ − z), shape (b, c), with γ = `step`, 1 in the paper.

    At the minimising z that is (1 − γ) λ^(t−1) + γ ∇ℓ(z, y). Damping by γ: Deng, Lai, Peng and Yin, "Parallel
    Multi-Block ADMM with o(1/k) Convergence", 2017.
    """
    return dual + step * rho * (total - auxiliary)


def residual(auxiliary: Tensor, total: Tensor, own: Tensor, damping: float = 1.0) -> Tensor:
    """Eq. 8: s^k = z − Σ_{i≠k} h^i W_i, as z − (total − own), in the shape of `own`.

    All parties step at once, so together they cover z − total up to M times. With the damping D = M each party is asked
    for its share alone, s^k = h^k W_k + (z − total) / D, and steps with the penalty D ρ: the sharing problem of Boyd et
    al., "Distributed Optimization and Statistical Learning via ADMM", 2011, Section 7.3. Eq. 9's gradient at the old
    logits is the same for every D.

    Args:
        own: h^k W_k, party k's share of `total`: (b, c), or (M, b, c) for all parties.
        damping: D ≥ 1; 1 in the paper.
    """
    if damping == 1:
        return auxiliary - (total - own)
    return own + (auxiliary - total) / damping


def local_gradient(logits: Tensor, dual: Tensor, residual: Tensor, rho: float) -> Tensor:
    """Eq. 9's gradient with respect to party k's logits h^k W_k, (b, c): (λ + ρ (h^k W_k − s^k)) / b.

    Times W_k' it is the gradient at the embeddings, from which a model back-propagates without a graph of the loss.
    With all of ŷ as `logits` and z as `residual` it is Eq. 7's gradient at the logits, the same for every party. It
    includes the mean over the batch and excludes the regulariser β R.
    """
    return (dual + rho * (logits - residual)) / logits.shape[0]


def head_gradients(embeddings: Tensor, heads: Tensor, signal: Tensor, weight_decay: float = 0.0) -> Tensor:
    """Eq. 7's gradient with respect to every head at once, each at the same old sum (Jacobi): h' signal + β W.

    Args:
        signal: `local_gradient(total, dual, auxiliary, rho)`, shape (b, c).
        weight_decay: β of R(W) = ½ ‖W‖².
    """
    return (embeddings.transpose(-1, -2) @ signal).add_(heads, alpha=weight_decay)
