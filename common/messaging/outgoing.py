"""Tensors that may leave a party. Each way out is a type, so that a message says in its fields what it takes.

A field `Annotated[Released, TensorSpec(...)]` takes at the sender what its privacy stage returned; the type checker
refuses anything else, and so does the party's door (client/privacy/egress.py). What an operation makes of such a tensor
is an ordinary tensor again. At the receiver the field holds an ordinary tensor.
"""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from colonnade.common.compression.quantise import Packed


class Outgoing(Tensor):
    """A tensor that may leave: an alias of what it was made of, detached. The door keeps a copy of its own.

    Attributes:
        mechanism: what was done to it, as the ledger names it.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]  # as nn.Parameter has it
    mechanism: str

    @classmethod
    def _made(cls, value: Tensor, mechanism: str) -> Self:
        made = Tensor._make_subclass(cls, value)  # detached; shares values and the count of changes in place
        made.mechanism = mechanism
        return made


class Released(Outgoing):
    """A function of private rows that went through the privacy stage. Made in common/privacy alone, as a test checks.

    Args:
        value: what may leave.
        mechanism: what was done to it, as the ledger names it.
        epsilon: spent by all releases so far, or None where nothing is protected.
        packed: the value as it travels, if not as it is.
    """

    epsilon: float | None
    packed: Packed | None

    def __new__(cls, value: Tensor, mechanism: str, epsilon: float | None, packed: Packed | None = None) -> Self:
        """Takes note of what it cost."""
        made = cls._made(value, mechanism)
        made.epsilon, made.packed = epsilon, packed
        return made


class MaskedTensor(Outgoing):
    """Something that says nothing by itself: sealed for others, blinded, a share of a code, a list that was shuffled.

    Made by the code that seals, blinds, codes and shuffles alone, as a test checks.

    Args:
        value: what may leave.
        mechanism: what hides it, as the ledger names it.
        summed: whether the receiver learns a sum that it is a part of: what is under it must have been released.
    """

    summed: bool

    def __new__(cls, value: Tensor, mechanism: str, *, summed: bool = False) -> Self:
        """Takes note of what hides it."""
        made = cls._made(value, mechanism)
        made.summed = summed
        return made

    def viewed(self, dtype: torch.dtype) -> MaskedTensor:
        """The same bits as words of another size."""
        return MaskedTensor(self.view(dtype), self.mechanism, summed=self.summed)


def nothing(*shape: int, dtype: torch.dtype) -> MaskedTensor:
    """A tensor without entries, for a message that has nothing to say. Raises ValueError if it has entries."""
    if (empty := torch.empty(shape, dtype=dtype)).numel():
        raise ValueError(f"a tensor of shape {shape} has entries")
    return MaskedTensor(empty, "an empty answer")
