"""A server and m of n parties that have the keys of a round opened for two sets: with enough of them nothing is hidden.

Half of the honest parties are told one set, half another, and every colluder opens its shares for both.
docs/sums.md says from which m on that is enough: 2 t <= n + m.

Bounds: blinded sums (both).
"""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor

from colonnade.common.aggregation.masks import BlindError, remove_masks
from colonnade.common.aggregation.messages import OpenedShares
from colonnade.common.aggregation.recovery import derived_key, elements_of, wrapped_keys
from tests.common.aggregation.test_recovery import ABOUT, Parties, drawn

ROUND = 5
View = tuple[list[str], dict[str, OpenedShares]]
"""A set, and the shares that its parties have opened for it."""


def two_views(there: Parties, colluders: int) -> list[View]:
    """Sets as even as can be, with the colluders in both. An honest party opens nothing if its set is too small."""
    bought, honest = there.names[:colluders], there.names[colluders:]
    half = (len(honest) + 1) // 2
    views = []
    for group in (honest[:half], honest[half:]):
        over, opened = bought + group, {}
        for name in over:
            shared = deepcopy(there.shared[name]) if name in bought else there.shared[name]
            if name in bought:
                shared._least = 0  # a colluder keeps no rule
            try:
                opened[name] = shared.open(ROUND, there.names, over)
            except BlindError as refused:
                assert f"at least {there.sharing.threshold} are needed" in str(refused)
        views.append((over, opened))
    return views


def guessed(there: Parties, views: list[View]) -> list[View]:
    """With shares made up in the place of those that are lacking."""
    made = []
    for over, opened in views:
        lacking = [name for name in there.names if name not in opened][: there.sharing.threshold - len(opened)]
        random = torch.randint(0, 256, (len(lacking), len(there.names), 32), dtype=torch.uint8)
        made_up = {name: OpenedShares(ROUND, pads) for name, pads in zip(lacking, random, strict=True)}
        made.append((over, opened | made_up))
    return made


def key_of(there: Parties, owner: str, view: View) -> bytes:
    """The key that t shares give: of its own mask if it is in the set, else that over its pairs' keys."""
    over, opened = view
    threshold, place = there.sharing.threshold, there.names.index(owner)
    holders = [there.names.index(name) for name in opened][:threshold]
    sealed = there.dealt[owner].shares[ROUND - 1, 0 if owner in over else 1].numpy()[holders]
    pads = torch.stack([share.pads[place] for share in list(opened.values())[:threshold]]).numpy()
    (secret,) = there.sharing.combine(holders, elements_of(sealed ^ pads)[:, None])
    return derived_key(secret)


def uncovered(there: Parties, victim: str, message: Tensor, views: list[View]) -> Tensor:
    """The victim's message without its own mask and those of its pairs, as far as the keys are right."""
    with_it, without = sorted(views, key=lambda view: victim not in view[0])
    row = wrapped_keys(key_of(there, victim, without), there.dealt[victim].pair_keys[ROUND - 1].numpy())
    pairs = {(victim, name): row[place].tobytes() for place, name in enumerate(there.names) if name != victim}
    return remove_masks(message, ROUND, 0, there.names, {victim: key_of(there, victim, with_it)}, pairs, about=ABOUT)


def shown(count: int, threshold: int) -> tuple[Parties, dict[str, Tensor], dict[str, Tensor]]:
    """Parties, their values and what the server has of a round over all of them."""
    there = Parties(count, threshold)
    words = drawn(there.names)
    return there, words, {name: there.masked(name, words[name], ROUND, there.names) for name in there.names}


@pytest.mark.parametrize(
    ("count", "threshold", "colluders"),
    [(4, 3, 2), (5, 3, 1), (6, 4, 2), (7, 4, 1), (7, 5, 3), (9, 7, 5)],
    ids=str,
)
def test_with_2t_of_n_and_m_every_honest_value_is_in_the_clear(count: int, threshold: int, colluders: int) -> None:
    there, words, sent = shown(count, threshold)
    views = two_views(there, colluders)
    for victim in there.names[colluders:]:
        assert torch.equal(uncovered(there, victim, sent[victim], views), words[victim])
        with pytest.raises(BlindError, match=f"it has opened those of round {ROUND}"):
            there.shared[victim].open(ROUND, there.names, there.names)  # each of them has kept its rules


@pytest.mark.parametrize(
    ("count", "threshold", "colluders"),
    [(4, 3, 1), (5, 3, 0), (6, 4, 1), (5, 4, 2), (7, 5, 2), (9, 7, 4)],
    ids=str,
)
def test_with_one_party_less_one_of_the_two_sets_is_too_small(count: int, threshold: int, colluders: int) -> None:
    """Shares that are made up for it give other keys, and leave the values behind a mask."""
    there, words, sent = shown(count, threshold)
    views = two_views(there, colluders)
    assert min(len(opened) for _, opened in views) < threshold
    for victim in there.names[colluders:]:
        left = uncovered(there, victim, sent[victim], guessed(there, views))
        assert int((left == words[victim]).sum()) <= 1  # 12 words of 32 bits
