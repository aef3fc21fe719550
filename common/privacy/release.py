"""What turns private values into values that may leave a party.

A release returns what leaves and the event that its accounting needs in one call, so that noise
and accounting cannot drift apart. This module knows one: `none`, which protects nothing and
says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Released:
    """What may leave, and what it costs.

    Args:
        value: the tensor that leaves.
        mechanism: what was done to it, as the ledger names it.
        epsilon: spent by all releases so far, or None where nothing is protected.
    """

    value: Tensor
    mechanism: str
    epsilon: float | None


class Release(Protocol):
    """A privacy stage."""

    def __call__(self, private: Tensor) -> Released:
        """Releases a function of private rows."""


def release_clear(private: Tensor) -> Released:
    """Releases values as they are: no clipping, no noise, no guarantee."""
    return Released(private.detach(), "none", None)
