"""Shares of secrets: any t open them, and t - 1 say nothing."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.field import secure_elements
from colonnade.common.aggregation.integers import LARGEST
from colonnade.common.aggregation.recovery import Sharing
from colonnade.common.errors import InputError


@given(st.data())
def test_any_t_shares_give_the_secret(data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, 14))
    threshold = data.draw(st.integers(1, parties))
    chosen = data.draw(st.permutations(range(parties)))[:threshold]
    secrets = torch.tensor([0, 1, LARGEST - 1, data.draw(st.integers(0, LARGEST - 1))])
    sharing = Sharing(threshold, parties)
    shares = sharing.share(secrets, secure_elements(LARGEST))
    assert torch.equal(sharing.combine(chosen, shares[list(chosen)]), secrets)


@pytest.mark.parametrize(("threshold", "parties"), [(2, 3), (3, 4)])
def test_t_minus_1_shares_have_the_same_distribution_for_every_secret_and_t_have_not(
    threshold: int, parties: int
) -> None:
    """Every polynomial over F_5 is counted."""
    p = 5
    sharing = Sharing(threshold, parties, p)

    def seen(secret: int, places: tuple[int, ...]) -> Counter[tuple[int, ...]]:
        views = Counter[tuple[int, ...]]()
        for drawn in product(range(p), repeat=threshold - 1):
            shares = sharing.share(torch.tensor([secret]), lambda _shape, drawn=drawn: torch.tensor(drawn)[:, None])
            views[tuple(shares[list(places), 0].tolist())] += 1
        return views

    for places in combinations(range(parties), threshold - 1):
        views = [seen(secret, places) for secret in range(p)]
        assert all(view == views[0] for view in views) and len(views[0]) == p ** (threshold - 1)
    assert seen(0, tuple(range(threshold))) != seen(1, tuple(range(threshold)))


@pytest.mark.parametrize(("threshold", "parties", "p"), [(0, 3, 7), (4, 3, 7), (2, 7, 7)])
def test_a_sharing_that_cannot_be_is_refused(threshold: int, parties: int, p: int) -> None:
    with pytest.raises(InputError, match=f"no sharing among {parties} parties of which {threshold} open a secret"):
        Sharing(threshold, parties, p)


@pytest.mark.parametrize("places", [[0], [0, 0], [0, 3], [0, 1, 2]])
def test_anything_but_t_shares_of_different_parties_is_refused(places: list[int]) -> None:
    with pytest.raises(InputError, match="expected 2 of different parties"):
        Sharing(2, 3).combine(places, torch.zeros(len(places), 1, dtype=torch.int64))
