"""Audit of `once`: what a server and its colluders see of one party in a blinded sum.

They subtract everything but the victim's values and the noise of the honest parties that are present: `plan.honest` of
them in the worst case. Noise shares are drawn and added as in a run, in whole steps of the sum's ring.
"""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.numerics.ring import Ring
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.noise import secure_bytes
from colonnade.common.privacy.sum_noise import NoiseShare, sum_deviation
from colonnade_lab.attacks.audit.canaries import Audited


def noisy_sums(plan: PrivacyPlan, ring: Ring, releases: int, shares: int = 0) -> Audited:
    """Audits `federation.privacy.once`: a canary is a party's matrix, or a row, at one of two ends, in sums.

    `shares` counts the noise shares in a sum, the victim's included; 0 takes as many as the plan assumes.
    """
    share, clip, shares = NoiseShare(plan, ring, secure_bytes), plan.config.clip, shares or plan.honest
    apart = clip if plan.config.adjacency == "participation" else 2 * clip

    def scores(coins: Tensor) -> Tensor:
        ends = clip - apart * (~coins).double()
        found = torch.zeros(len(coins), dtype=torch.float64)
        for _ in range(releases):
            total = share(ends)  # the victim's
            for _ in range(shares - 1):
                total = total + share(torch.zeros_like(ends))  # of others, with known values
            found += total.double() / ring.scale
        return found * apart / sum_deviation(plan) ** 2

    name = f"noise once, {shares} shares, sigma {plan.noise_multiplier:g}, {plan.config.adjacency}, {releases} releases"
    return Audited(name, plan.epsilon(releases), plan.config.delta, scores, gaussian=True)
