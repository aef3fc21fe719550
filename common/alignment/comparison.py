"""What all members have, found in lists that all of them have raised."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from common.errors import ContractError

Words = np.ndarray[tuple[int], np.dtype[np.bytes_]]


def compare(lists: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Where the elements that are in all lists stand in each.

    The order of the result is that of the raised elements, which is random to everybody.

    Args:
        lists: by owner, uint8 (keys, 32) each.

    Returns:
        Of every list int64 (common,): the n-th position of each is the same element.

    Raises:
        ContractError: a list has an element twice.
    """
    words = {owner: points.contiguous().numpy().view("S32").reshape(-1) for owner, points in lists.items()}
    orders = {owner: np.argsort(own) for owner, own in words.items()}
    common: Words | None = None
    for owner, own in words.items():
        ascending = own[orders[owner]]  # of one list at a time: they are long
        if twice := int((ascending[1:] == ascending[:-1]).sum()):
            raise ContractError(owner, "Points", "points", "every element once", f"{twice} again")
        common = ascending if common is None else _both(common, ascending)
    assert common is not None  # the server has a list itself
    places = {owner: np.searchsorted(own, common, sorter=orders[owner]) for owner, own in words.items()}
    return {owner: torch.from_numpy(orders[owner][at].astype(np.int64)) for owner, at in places.items()}


def _both(one: Words, other: Words) -> Words:
    """What is in both of two ascending lists; the first may be empty."""
    at = np.searchsorted(other, one)
    found: Words = one[other[np.minimum(at, len(other) - 1)] == one]
    return found
