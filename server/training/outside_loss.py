"""Training losses of other packages: `federation.loss`. See docs/plug_ins.md."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from colonnade.common.config.outside import OUTSIDE_LOSSES, load_function
from colonnade.common.errors import InputError


class OutsideLoss:
    """A loss ℓ(z, y) of another package, which gives the value of every row. Its gradient comes from autograd.

    It has no proximal map, and no exact change along a step: contracts with `any_loss` need neither.

    Args:
        name: of the entry point, whose object maps scores float32 (rows, outputs) and targets to losses (rows,).
            Targets are class numbers int64 (rows,), in regression standardised numbers (rows, targets).

    Raises:
        ConfigError: the package cannot be imported, or the object cannot be called.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._call = load_function(OUTSIDE_LOSSES, name)

    def value(self, logits: Tensor, targets: Tensor) -> Tensor:
        """ℓ(z_j, y_j) of every row: logits (b, c) to (b,). Raises ConfigError if the loss fails or is none of these."""
        scores = logits.clone()  # a loss that changes its input spoils nothing
        if scores.requires_grad:
            check = partial(self._check, logits=logits, what="a gradient")
            scores.register_hook(check)  # type: ignore[no-untyped-call]
        with OUTSIDE_LOSSES.blamed(self._name):
            found = self._call(scores, targets.clone())
        if not isinstance(found, Tensor):
            raise self._unfit(f"it returned {type(found).__name__}, expected a tensor (rows,)")
        if found.shape != (len(logits),):
            also = "; a loss is one number a row, not their mean" if found.ndim == 0 else ""
            raise self._unfit(f"it returned {tuple(found.shape)} for {len(logits)} rows, expected one a row{also}")
        if not found.is_floating_point() or (logits.requires_grad and not found.requires_grad):
            raise self._unfit("its result cannot be differentiated by the scores")
        self._check(found.detach(), logits, "a loss")
        return found

    def gradient(self, logits: Tensor, targets: Tensor) -> Tensor:
        """∇_z ℓ(z_j, y_j) of every row, (b, c). Raises ConfigError as `value`."""
        with torch.enable_grad():
            leaf = logits.detach().requires_grad_()
            total = self.value(leaf, targets).sum()
            with OUTSIDE_LOSSES.blamed(self._name):
                return torch.autograd.grad(total, leaf)[0]

    def mean(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The batch's mean, a scalar to differentiate. Raises ConfigError as `value`."""
        return self.value(logits, targets).mean()

    def proximal(self, centre: Tensor, targets: Tensor, rho: float) -> Tensor:  # noqa: ARG002
        """Not available. Raises InputError."""
        raise self._absent("proximal map")

    def change(self, step: Tensor, logits: Tensor, targets: Tensor) -> Tensor:  # noqa: ARG002
        """Not available. Raises InputError."""
        raise self._absent("exact change along a step")

    def _check(self, values: Tensor, logits: Tensor, what: str) -> None:
        if not bool(values.isfinite().all()) and bool(logits.isfinite().all()):
            raise self._unfit(f"it gave {what} that is not finite, of finite scores")

    def _unfit(self, why: str) -> InputError:
        return OUTSIDE_LOSSES.unfit(self._name, why)

    def _absent(self, what: str) -> InputError:
        return InputError(
            f"{OUTSIDE_LOSSES.describe(self._name)} has no {what}, which this protocol needs",
            hint="set `any_loss` in the contracts of protocols alone that use a loss's value and gradient",
        )
