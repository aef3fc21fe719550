"""Who of several members knows whom: people that all share, and people that only some of them know."""

from __future__ import annotations

import numpy as np

from colonnade.common.errors import InputError


def share(people: int, members: int, overlap: float, seed: int) -> list[np.ndarray]:
    """The people that each member knows, in an order of its own.

    Args:
        people: how many there are, numbered from 0.
        members: how many know them, two or more.
        overlap: the share of people, above 0 and at most 1, that every member knows. Every other is known to some
            members, drawn evenly from all choices but nobody and everybody.
        seed: equal arguments give equal answers.

    Returns:
        `members` arrays of int64.

    Raises:
        InputError: `overlap` is no such share.
    """
    if not 0 < overlap <= 1:
        raise InputError(f"--overlap {overlap:g}: expected a share above 0, at most 1", hint="for example 0.8")
    random = np.random.default_rng(seed)
    common = round(overlap * people)
    order = random.permutation(people)
    masks = random.integers(1, 2**members - 1, people - common)
    known = [np.concatenate([order[:common], order[common:][(masks >> place) & 1 == 1]]) for place in range(members)]
    return [random.permutation(rows) for rows in known]
