"""Privacy stages: conversion of private values into values that may leave a party.

A release adds the noise and pays for it in one call, so that noise and accounting cannot diverge. `release_clear` gives
no protection; `GaussianRelease` is client-level differential privacy.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from colonnade.common.errors import TrainingDiverged
from colonnade.common.messaging.forms import AS_IS, Form
from colonnade.common.messaging.message import all_finite
from colonnade.common.messaging.outgoing import Released
from colonnade.common.messaging.quantise import pack, unpack
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.noise import Normals, add_normals
from colonnade.common.privacy.sum_noise import NoiseShare


class Release(Protocol):
    """A privacy stage."""

    def __call__(self, private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
        """Releases a function of private rows.

        Args:
            private: (rows, ...).
            evaluation: True if they are not used for training.
            rows: their numbers, int64 (rows,), if every row of the matrix is a function of one data row alone.
        """


def release_clear(
    private: Tensor,
    *,
    evaluation: bool = False,  # noqa: ARG001  # part of the interface
    rows: Tensor | None = None,  # noqa: ARG001  # part of the interface
) -> Released:
    """Releases values as they are: no clipping, no noise, no guarantee.

    Stages with noise map every number to a finite one, so that nothing leaves but what they protect.

    Raises:
        TrainingDiverged: a number is not finite.
    """
    if not all_finite(private):
        raise TrainingDiverged("this side", "has numbers to release that are not finite")
    return Released(private, "none", None)


class GaussianRelease:
    """Clips the whole matrix to C and adds N(0, (sigma C)^2) to every entry: Xie et al. 2024, Section V.

    Client-level DP for one party's whole data. `add_normals` rounds, so low bits reveal nothing.

    Args:
        plan: C, sigma and delta.
        normals: source of the noise.
        budget: charged for every release.
        share: adds the noise in place of `normals`, where a sum has it once.
    """

    def __init__(self, plan: PrivacyPlan, normals: Normals, budget: Budget, share: NoiseShare | None = None) -> None:
        self._plan, self._normals, self._budget, self._share = plan, normals, budget, share
        self._deviation = plan.noise_multiplier * plan.config.clip
        seeded = " seeded" if plan.config.seeded else ""
        sigma, delta = f"{plan.noise_multiplier:g}", f"{plan.config.delta:g}"
        about = f"{plan.config.adjacency}{seeded}{once_in_words(plan)}"
        self._name = f"gaussian C={plan.config.clip:g} sigma={sigma} delta={delta} {about}"
        self._void = plan.void is not None

    def __call__(
        self,
        private: Tensor,
        *,
        evaluation: bool = False,
        rows: Tensor | None = None,  # noqa: ARG002  # part of the interface
    ) -> Released:
        """Releases a matrix in its dtype. Raises BudgetSpent."""
        if evaluation and self._plan.config.evaluate != "released":
            return unpaid(self._plan.config.evaluate, private)
        spent = self._budget.spend()
        clipped = clip_frobenius(private.detach().double(), self._plan.config.clip)
        epsilon = None if self._void else self._plan.epsilon(spent)
        if self._share is not None:
            return shared(self._share, clipped, private, self._name, epsilon)
        value = add_normals(clipped, self._deviation, self._normals)
        return Released(value.to(private.dtype), self._name, epsilon)


def shared(share: NoiseShare, bounded: Tensor, private: Tensor, name: str, epsilon: float | None) -> Released:
    """Releases clipped values with a share of a sum's noise, in the private ones' dtype: for masked sums alone."""
    steps = share(bounded)
    return Released(share.value(steps, private), name, epsilon, steps=steps)


def once_in_words(plan: PrivacyPlan) -> str:
    """The words of a mechanism's name about noise once, or ""."""
    config = plan.config.once
    return "" if config is None else f" once, {plan.present} present, {config.colluders} colluding"


def unpaid(evaluate: str, private: Tensor) -> Released:
    """Evaluation that no budget pays for: the values as they are (`clean`), or zeros in their place (`none`)."""
    if evaluate == "none":
        return Released(torch.zeros_like(private), "zeros", None)
    return Released(private, "none (benchmark)", None)


class QuantisedRelease:
    """Compresses what another stage releases; adds no privacy.

    Args:
        inner: the stage before.
        form: wire form.
        evaluations: wire form for validation and test rows.
        draws: generator for the rounding.
    """

    def __init__(self, inner: Release, form: Form, evaluations: Form, draws: torch.Generator) -> None:
        self._inner, self._form, self._evaluations, self._draws = inner, form, evaluations, draws

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        """Releases the values that the receiver will decode. Raises InputError, and the inner stage's errors."""
        inner = self._inner(private, evaluation=evaluation, rows=rows)
        form = self._evaluations if evaluation else self._form
        if inner.dtype != torch.float32 or form == AS_IS or inner.steps is not None:
            return inner
        packed = pack(inner.detach(), form, self._draws)
        value = unpack(packed).to(private.device)
        return Released(value, f"{inner.mechanism}, {form}", inner.epsilon, packed)


def clip_frobenius(matrix: Tensor, threshold: float) -> Tensor:
    """A min(1, C / |A|_F): at most C in the Frobenius norm, in the matrix's shape and dtype.

    Entries that are not finite count as 0: noise would not hide them.
    """
    matrix = matrix.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
    norm = float(matrix.norm())
    return matrix * (threshold / max(norm, threshold))


def through_clip(matrix: Tensor, threshold: float, gradient: Tensor) -> Tensor:
    """Gradient of a loss at a matrix, given that at `clip_frobenius` of it; all of the matrix's shape."""
    norm = float(matrix.norm())
    if norm <= threshold:
        return gradient
    along = float((matrix * gradient).sum()) / norm**2
    return (gradient - along * matrix) * (threshold / norm)
