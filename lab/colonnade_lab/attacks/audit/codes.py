"""Audits of discrete codes: the released code of a row, and the encoder that is trained with the row."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from colonnade.common.privacy.codes.plan import DiscretePlan
from colonnade.common.privacy.codes.release import CodeRelease, SeededSets
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.linear_encoder import LinearEncoder
from colonnade.common.privacy.noise import Normals, secure_bytes, secure_normals
from colonnade_lab.attacks.audit.canaries import Audited

_RATE = 1e-6  # learning rate: weights stay near 0, where gradients are long; scores need no scale
_LONG = 1e3  # a canary's input, so that its gradient has the clip's length
_TOGETHER = 2000  # canaries per training, each with its own input


def released_codes(plan: DiscretePlan, bits: Bits | None = None) -> Audited:
    """Audits `mechanism: discrete`: a canary is a row that the encoder did not learn from, with code 0 or 1."""
    source = bits or secure_bytes()

    def scores(coins: Tensor) -> Tensor:
        held_out = replace(plan, train=torch.zeros(0, dtype=torch.int64))
        training, others = (SeededSets(each, lambda _rows: source) for each in (held_out.training, held_out.held_out))
        release = CodeRelease(held_out, training, others, len(coins), lambda: 1.0)
        sets = release(torch.eye(plan.codes)[coins.long()], rows=torch.arange(len(coins)))
        return (sets[:, 1] - sets[:, 0]).double()

    name = f"codes, {plan.held_out.size} of {plan.codes}"
    return Audited(name, plan.held_out.epsilon, 0.0, scores)


def trained_encoder(plan: DiscretePlan, normals: Normals = secure_normals, bits: Bits | None = None) -> Audited:
    """Audits DP-SGD of the encoder: a canary is a row with its own input, in the first or the second class.

    Every step that draws the row moves the weights of its input by the whole clip, in one direction or the other.
    """

    def scores(coins: Tensor) -> Tensor:
        encoder = LinearEncoder(plan.encoder, plan.config.clip, _RATE)
        found = []
        for some in torch.split(coins, _TOGETHER):
            rows = torch.eye(len(some), dtype=torch.float64) * _LONG
            targets = torch.eye(2, dtype=torch.float64)[some.long()]
            weights = encoder.train(rows, targets, normals=normals, bits=bits)
            found.append(weights[:, 1] - weights[:, 0])
        return torch.cat(found)

    name = (
        f"encoder, sigma {plan.noise_multiplier:g}, {plan.encoder.steps} steps, rows drawn at {plan.encoder.rate:.3g}"
    )
    return Audited(name, plan.of_encoder, plan.config.delta, scores)
