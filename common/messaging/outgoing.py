"""Tensors that may leave a party. Each release is a type, which a message requires in its fields.

A field `Annotated[Released, TensorSpec(...)]` takes at the sender a result of its privacy stage; the type checker
refuses anything else, and so does the party's egress (client/privacy/egress.py). An operation on such a tensor returns
an ordinary tensor. At the receiver the field holds an ordinary tensor.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from colonnade.common.messaging.forms import Packed


class Outgoing(Tensor):
    """A tensor that may leave: a detached alias of its source. The egress keeps its own copy.

    Attributes:
        mechanism: the protection, as the ledger names it.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as in nn.Parameter
    mechanism: str

    @classmethod
    def _made(cls, value: Tensor, mechanism: str) -> Self:
        made = Tensor._make_subclass(cls, value)  # detached; shares values and the version counter
        made.mechanism = mechanism
        return made


class Released(Outgoing):
    """A function of private rows that went through the privacy stage. Created only in common/privacy (tested).

    Args:
        mechanism: the protection, as the ledger names it.
        epsilon: spent by all releases so far, or None without protection.
        packed: the value's wire form, if compressed.
        steps: the value as whole steps of a ring, int64 in its shape, if it has only a share of the noise of a sum: it
            may leave only under masks.
    """

    epsilon: float | None
    packed: Packed | None
    steps: Tensor | None

    def __new__(
        cls,
        value: Tensor,
        mechanism: str,
        epsilon: float | None,
        packed: Packed | None = None,
        *,
        steps: Tensor | None = None,
    ) -> Self:
        made = cls._made(value, mechanism)
        made.epsilon, made.packed, made.steps = epsilon, packed, steps
        return made


class MaskedTensor(Outgoing):
    """A tensor that reveals nothing by itself: sealed for others, blinded, a share of a code, or a shuffled list.

    Created only by the code that seals, blinds, codes and shuffles (tested).

    Args:
        mechanism: the protection, as the ledger names it.
        summed: True if the receiver learns a sum that includes it: the hidden value must then be a release.
    """

    summed: bool

    def __new__(cls, value: Tensor, mechanism: str, *, summed: bool = False) -> Self:
        made = cls._made(value, mechanism)
        made.summed = summed
        return made

    def viewed(self, dtype: torch.dtype) -> MaskedTensor:
        """The same bits as words of another size."""
        return MaskedTensor(self.view(dtype), self.mechanism, summed=self.summed)


def nothing(*shape: int, dtype: torch.dtype) -> MaskedTensor:
    """A tensor without entries, for an empty message. Raises ValueError if it has entries."""
    if (empty := torch.empty(shape, dtype=dtype)).numel():
        raise ValueError(f"a tensor of shape {shape} has entries")
    return MaskedTensor(empty, "an empty answer")
