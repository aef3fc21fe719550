"""Shares of keys: any t open them, t - 1 say nothing; wrong ones are located among more than t, noticed among t + 1."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import combinations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.aggregation.field import secure_elements
from colonnade.common.aggregation.integers import LARGEST
from colonnade.common.aggregation.messages import OpenedShares, SealedShares
from colonnade.common.aggregation.recovery import Sharing, check_shares, recover
from colonnade.common.errors import ContractError, InputError
from tests.common.aggregation.test_recovery import Parties

Spoil = Callable[[dict[str, SealedShares], dict[str, OpenedShares]], None]


def opens(*parties: str, about: slice = slice(None)) -> Spoil:
    """These flip a bit of every pad, or of those about some owners."""

    def spoil(_dealt: dict[str, SealedShares], opened: dict[str, OpenedShares]) -> None:
        for party in parties:
            opened[party].pads[about] ^= 1

    return spoil


def deals(owner: str, to: slice) -> Spoil:
    """This one flips a bit of the shares of its key of round 1 to some holders."""

    def spoil(dealt: dict[str, SealedShares], _opened: dict[str, OpenedShares]) -> None:
        dealt[owner].shares[0, 0, to] ^= 1

    return spoil


def named(count: int, threshold: int, spoil: Spoil, openers: int = 0) -> str:
    """The beginning of the error, over all parties of which some open; "" if there is none."""
    there = Parties(count, threshold)
    opened = there.opened(1, there.names, there.names, there.names[: openers or count])
    spoil(there.dealt, opened)
    try:
        recover(there.names, there.sharing, there.dealt, opened, there.names, there.names)
    except ContractError as error:
        return str(error).partition(" sent OpenedShares.pads")[0]
    return ""


@pytest.mark.parametrize(
    ("spoil", "who"),
    [
        (opens("p3"), "p3"),
        (opens("p6"), "p6"),
        (opens("p3", about=slice(0, 2)), "p3"),
        (opens("p3", about=slice(3, 4)), "p3"),  # of its own secret
        (opens("p3", about=slice(0, 1)), "one of p0, p3"),
        (opens("p3", "p5"), "p3, p5"),
        (deals("p2", slice(4, 5)), "one of p2, p4"),
        (deals("p2", slice(4, 6)), "p2"),
        (deals("p2", slice(3, 7)), "p2"),  # more than can be located
        (opens("p1", "p3", "p5"), "several of p0, p1, p2, p3, p4, p5, p6"),
    ],
)
def test_of_more_shares_than_needed_the_wrong_ones_are_located(spoil: Spoil, who: str) -> None:
    """Of 7 with t = 3, two wrong ones can be."""
    assert named(7, 3, spoil) == who


@pytest.mark.parametrize(
    ("spoil", "openers", "who"),
    [
        (opens("p3"), 4, "one of p0, p1, p2, p3"),
        (opens("p3", about=slice(4, 5)), 4, "one of p0, p1, p2, p3, p4"),
        (opens("p2"), 3, ""),
        (opens(), 4, ""),
    ],
    ids=["t + 1", "t + 1, of one owner", "t", "all right"],
)
def test_one_more_than_needed_is_noticed_and_none_more_is_not(spoil: Spoil, openers: int, who: str) -> None:
    assert named(5, 3, spoil, openers) == who


def test_exactly_t_openers_are_noted_as_unchecked() -> None:
    there = Parties(5, 3)
    for openers, unchecked in ((3, there.names[:3]), (4, [])):
        opened = there.opened(openers, there.names, there.names, there.names[:openers])
        keys = recover(there.names, there.sharing, there.dealt, opened, there.names, there.names)
        assert list(keys.unchecked) == unchecked


@given(st.data())
def test_any_wrong_shares_up_to_half_of_the_surplus_are_named_exactly(data: st.DataObject) -> None:
    """Those of two or more owners' secrets, in any entries."""
    threshold = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(threshold + 2, 14))
    there = data.draw(st.permutations(range(count)))[: data.draw(st.integers(threshold + 2, count))]
    wrong = there[: data.draw(st.integers(1, (len(there) - threshold) // 2))]
    sharing, draws = Sharing(threshold, count), secure_elements(LARGEST)
    owners = [f"o{number}" for number in range(len(wrong) + 2)]  # more than liars: else either side explains it
    shares = sharing.share(draws((len(owners), 2)), draws)[there]
    for place, _ in enumerate(wrong):
        entry = data.draw(st.integers(0, 1))
        shift = data.draw(st.integers(1, LARGEST - 1))
        shares[place, :, entry] = (shares[place, :, entry] + shift) % LARGEST
    with pytest.raises(ContractError) as found:
        check_shares(sharing, {f"h{place:02}": place for place in there}, owners, shares)
    assert found.value.party == ", ".join(sorted(f"h{place:02}" for place in wrong))


def test_many_parties_are_checked_at_once() -> None:
    """Of 40 parties 6 lie: 3.8 million sets to try one after the other."""
    sharing, draws = Sharing(27, 40), secure_elements(LARGEST)
    shares = sharing.share(draws((8, 8)), draws)
    shares[:6] = torch.randint(0, LARGEST, shares[:6].shape)
    with pytest.raises(ContractError) as found:
        check_shares(sharing, {f"h{k:02}": k for k in range(40)}, [f"o{k}" for k in range(8)], shares)
    assert found.value.party == ", ".join(f"h{k:02}" for k in range(6))


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
