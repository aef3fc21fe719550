"""Privacy stages: conversion of private values into values that may leave a party.

A release adds the noise and pays for it in one call, so that noise and accounting cannot diverge. `release_clear`
gives no protection.
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
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.sum_noise import NoiseShare


class Release(Protocol):
    """A privacy stage."""

    def __call__(self, private: Tensor, *, evaluation: bool, rows: Tensor | None = None) -> Released:
        """Releases a function of private rows.

        Args:
            private: (rows, ...).
            evaluation: True if they are not used for training.
            rows: their numbers, int64 (rows,), if each matrix row is a function of one data row.
        """


def release_clear(
    private: Tensor,
    *,
    evaluation: bool = False,  # noqa: ARG001  # part of the interface
    rows: Tensor | None = None,  # noqa: ARG001  # part of the interface
) -> Released:
    """Releases values as they are: no clipping, no noise, no guarantee.

    Stages with noise map every number to a finite one, so that only protected values leave. Raises TrainingDiverged if
    a number is not finite.
    """
    if not all_finite(private):
        raise TrainingDiverged("this side", "has numbers to release that are not finite")
    return Released(private, "none", None)


def shared(share: NoiseShare, bounded: Tensor, private: Tensor, name: str, epsilon: float | None) -> Released:
    """Releases clipped values with a share of a sum's noise, in `private`'s dtype: only for masked sums."""
    steps = share(bounded)
    return Released(share.value(steps, private), name, epsilon, steps=steps)


def once_in_words(plan: PrivacyPlan) -> str:
    """The part of a mechanism's name that describes noise once, or ""."""
    config = plan.config.once
    return "" if config is None else f" once, {plan.present} present, {config.colluders} colluding"


def unpaid(evaluate: str, private: Tensor) -> Released:
    """An unpaid evaluation: the values as they are (`clean`), or zeros instead (`none`)."""
    if evaluate == "none":
        return Released(torch.zeros_like(private), "zeros", None)
    return Released(private, "none (benchmark)", None)


class QuantisedRelease:
    """Compresses another stage's releases; adds no privacy.

    Args:
        evaluations: wire form for validation and test rows.
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
