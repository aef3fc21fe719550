"""Losses and metrics from other packages: `federation.loss` and `server.extra_metrics`. See docs/plug_ins.md."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.outside import OUTSIDE_LOSSES, OUTSIDE_METRICS, load_function
from colonnade.common.errors import ColonnadeError, ConfigError, InputError


class OutsideLoss:
    """A loss ℓ(z, y) from another package, one value per row, differentiated by autograd.

    It has no proximal map and no exact change along a step; contracts with `any_loss` need neither. Every method raises
    ConfigError if the function fails or returns an invalid value.

    Args:
        name: entry point, a function of scores float32 (rows, outputs) and targets that returns losses (rows,). Targets
            are class numbers int64 (rows,), in regression standardised numbers (rows, targets).
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._call = load_function(OUTSIDE_LOSSES, name)
        self._differentiated_once = False

    @torch.no_grad()
    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """ℓ(z_j, y_j) of every row: logits (b, c) to (b,)."""
        return self._values(logits, targets)

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        """∇_z ℓ(z_j, y_j) of every row, (b, c)."""
        return self._differentiated(logits, targets)[1]

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean loss, a scalar with a gradient."""
        values, slopes = self._differentiated(logits, targets)
        mean: Tensor = _Known.apply(logits, values.mean(), slopes / len(logits))  # type: ignore[no-untyped-call]
        return mean

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:  # noqa: ARG002
        raise self._absent("proximal map")

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        raise self._absent("exact change along a step")

    def refuse_unused(self, protocol: str) -> None:
        """Raises ConfigError if no gradient was asked for: a protocol of another package uses a loss of its own."""
        if not self._differentiated_once:
            raise ConfigError(
                f"federation.loss = {self._name!r}: the protocol {protocol} ended a round without its gradient, and "
                "trains with another loss",
                hint="leave federation.loss out; or let the protocol's `serve` take `ctx.loss`, as its contract's "
                "`exchange` promises",
            )

    def _differentiated(self, logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Values (b,) and gradients (b, c), detached. Errors of the backward pass are blamed on the package too."""
        self._differentiated_once = True
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            values = self._values(leaf, targets)
            if not values.requires_grad:
                raise self._unfit("its result cannot be differentiated by the scores")
            with OUTSIDE_LOSSES.blamed(self._name):
                slopes = torch.autograd.grad(values.sum(), leaf)[0]
        self._refuse_infinite(slopes, logits, "a gradient")
        return values.detach(), slopes

    def _values(self, logits: Tensor, targets: Tensor) -> Tensor:
        with OUTSIDE_LOSSES.blamed(self._name):
            found = self._call(logits.clone(), targets.clone())  # copies: a loss may change its input
            if not isinstance(found, Tensor):
                raise self._unfit(f"it returned {type(found).__name__}, expected a tensor (rows,)")
            if found.shape != (len(logits),):
                also = "; a loss is one number a row, not their mean" if found.ndim == 0 else ""
                raise self._unfit(f"it returned {tuple(found.shape)} for {len(logits)} rows, expected one a row{also}")
            self._refuse_infinite(found.detach(), logits, "a loss")  # fails of a sparse tensor, or one without values
        return found

    def _refuse_infinite(self, values: Tensor, logits: Tensor, what: str) -> None:
        if not bool(values.isfinite().all()) and bool(logits.isfinite().all()):
            raise self._unfit(f"it gave {what} that is not finite, of finite scores")

    def _unfit(self, why: str) -> InputError:
        return OUTSIDE_LOSSES.unfit(self._name, why)

    def _absent(self, what: str) -> InputError:
        return InputError(
            f"{OUTSIDE_LOSSES.describe(self._name)} has no {what}, which this protocol needs",
            hint="set `any_loss` in the contracts of protocols alone that use a loss's value and gradient",
        )


class _Known(torch.autograd.Function):
    """A scalar whose gradient at the scores is known."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, value: Tensor, gradient: Tensor) -> Tensor:  # noqa: ARG004
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, outer: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return outer * gradient, None, None


class OutsideMetrics:
    """Metrics from other packages for every evaluation. One that fails is reported once and left out.

    Args:
        names: entry points, functions of (scores, targets) that return a number. In classification: probabilities
            float64 (rows, classes) and class numbers int64 (rows,); in regression: predicted and true targets float64
            (rows, targets) in their own units.
    """

    def __init__(self, names: Sequence[str], warn: Callable[[str], None]) -> None:
        self._calls = {name: load_function(OUTSIDE_METRICS, name) for name in names}
        self._warn = warn
        self._failed: set[str] = set()

    def of(self, scores: np.ndarray, targets: np.ndarray) -> Mapping[str, float]:
        """Metrics by name, without those that fail or are not finite; empty if a score is not finite."""
        found: dict[str, float] = {}
        if not np.isfinite(scores).all():
            return found
        for name, call in self._calls.items():
            try:
                found[name] = _value(name, call, scores, targets)
            except ColonnadeError as failed:
                if name not in self._failed:
                    self._failed.add(name)
                    self._warn(f"{failed}; the run goes on without the metric")
        return found


def _value(name: str, call: Callable[..., Any], scores: np.ndarray, targets: np.ndarray) -> float:
    views = [array.view() for array in (scores, targets)]
    for view in views:
        view.flags.writeable = False  # shared with other metrics
    with OUTSIDE_METRICS.blamed(name):
        value = call(*views)
        if isinstance(value, bool) or not isinstance(value, Real):
            raise OUTSIDE_METRICS.unfit(name, f"it returned {type(value).__name__}, expected a number")
        number = float(value)  # code of the package too: no float holds every integer
    if not math.isfinite(number):
        raise ConfigError(f"{OUTSIDE_METRICS.describe(name)} gave {number}")
    return number
