"""Assignment of persons to members: some persons are shared by all, others by some members only."""

from __future__ import annotations

import numpy as np

from colonnade.common.errors import InputError


def share(persons: int, members: int, overlap: float, seed: int) -> list[np.ndarray]:
    """The persons of each member, `members` arrays of int64, each in an order of its own.

    Args:
        members: two or more.
        overlap: fraction of persons, above 0 and at most 1, that every member holds. Each other person is held by some
            members, drawn uniformly from all subsets but the empty and the full one.
    """
    if not 0 < overlap <= 1:
        raise InputError(f"--overlap {overlap:g}: expected a share above 0, at most 1", hint="for example 0.8")
    random = np.random.default_rng(seed)
    common = round(overlap * persons)
    order = random.permutation(persons)
    masks = random.integers(1, 2**members - 1, persons - common)
    known = [np.concatenate([order[:common], order[common:][(masks >> place) & 1 == 1]]) for place in range(members)]
    return [random.permutation(rows) for rows in known]


def order(rows: int, seed: int) -> np.ndarray:
    """The numbers of the rows, int64 (rows,), in an order drawn from the seed."""
    return np.random.default_rng(seed).permutation(rows)
