"""What all members have, found in lists that all of them have raised."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from common.errors import ContractError


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
    ascending = {owner: own[orders[owner]] for owner, own in words.items()}
    for owner, own in ascending.items():
        if twice := int((own[1:] == own[:-1]).sum()):
            raise ContractError(owner, "Points", "points", "every element once", f"{twice} again")
    common = reduce(lambda one, other: np.intersect1d(one, other, assume_unique=True), ascending.values())
    return {
        owner: torch.from_numpy(orders[owner][np.searchsorted(own, common)].astype(np.int64))
        for owner, own in ascending.items()
    }
