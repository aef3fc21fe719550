from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.alignment.messages import BLOCK
from colonnade.common.alignment.scratch import NUMBER, Scratch
from colonnade.common.alignment.sorting import Sorter, again, words
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.errors import ContractError


def compare(
    lists: Mapping[str, Sorter], folder: Path | None = None, width: int = ELEMENT
) -> tuple[int, dict[str, Scratch]]:
    """Finds the elements that are in all lists, and their positions in each.

    The result is in the order of the raised elements, which is random to all members.

    Args:
        lists: by owner, elements of `width` bytes and their positions; with equal numbers of buckets.

    Returns:
        The number of common elements, and as many positions for every list: the n-th of each is the same element.

    Raises:
        ContractError: a list repeats an element.
    """
    places, common = {owner: Scratch(NUMBER, folder) for owner in lists}, 0
    for buckets in zip(*(elements.sorted() for elements in lists.values()), strict=True):
        ascending = [words(bucket, width) for bucket in buckets]
        for owner, own in zip(lists, ascending, strict=True):
            if twice := again(own):
                raise ContractError(owner, "Points", "points", "every element once", f"{twice} again")
        both = reduce(lambda one, other: np.intersect1d(one, other, assume_unique=True), ascending)
        for owner, own, bucket in zip(lists, ascending, buckets, strict=True):
            places[owner].write(common, bucket[np.searchsorted(own, both), width:])
        common += len(both)
    return common, places


def distinct(rows: Tensor, size: int) -> bool:
    """True if no row number repeats; uses one bit for each of `size` rows."""
    seen = np.zeros(-(-size // 8), dtype=np.uint8)
    for some in torch.split(rows, BLOCK):
        np.bitwise_or.at(seen, some.numpy() >> 3, np.left_shift(1, some.numpy() & 7).astype(np.uint8))
    return int(np.bitwise_count(seen).sum()) == len(rows)
