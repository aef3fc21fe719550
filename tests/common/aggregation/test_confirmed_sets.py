"""Proofs of a round's set between two parties."""

from __future__ import annotations

import os
from itertools import combinations

import pytest
import torch

from colonnade.common.aggregation.summed_sets import SetError, SetProver, relayed

NAMES = ("a", "b", "c", "d")
ABOUT = bytes(32)
PAIRS = {pair: os.urandom(32) for pair in combinations(NAMES, 2)}
PROVERS = {
    name: SetProver(name, NAMES, {(set(pair) - {name}).pop(): key for pair, key in PAIRS.items() if name in pair})
    for name in NAMES
}


def test_a_set_that_all_were_told_is_confirmed_and_a_party_outside_of_it_gets_no_proof() -> None:
    members = ("a", "b", "d")
    sent = {name: PROVERS[name].proofs(7, members, about=ABOUT) for name in members}
    assert all(not proofs[2].any() and not proofs[NAMES.index(name)].any() for name, proofs in sent.items())
    received = relayed(NAMES, sent, sent)
    assert set(received) == set(members)
    for name in members:
        PROVERS[name].check(7, members, received[name], about=ABOUT)


def test_a_party_whose_words_are_masked_over_others_does_not_confirm() -> None:
    members = ("a", "b", "d")
    sent = {name: PROVERS[name].proofs(7, members, NAMES if name != "d" else members, about=ABOUT) for name in members}
    with pytest.raises(SetError, match=r"^d does not confirm that round 7 sums over a, b, d"):
        PROVERS["a"].check(7, members, relayed(NAMES, sent, sent)["a"], NAMES, about=ABOUT)


@pytest.mark.parametrize(
    "proofs",
    [
        lambda: PROVERS["b"].proofs(8, NAMES, about=ABOUT),
        lambda: PROVERS["b"].proofs(7, NAMES, stage=1, about=ABOUT),
        lambda: PROVERS["b"].proofs(7, NAMES, about=b"other rows"),
        lambda: PROVERS["b"].proofs(7, ("a", "b", "d"), about=ABOUT),
        lambda: PROVERS["a"].proofs(7, NAMES, about=ABOUT).roll(-1, 0),
        lambda: PROVERS["c"].proofs(7, NAMES, about=ABOUT),
        lambda: torch.zeros(4, 32, dtype=torch.uint8),
    ],
    ids=["another round", "another stage", "other rows", "another set", "our own sent back", "another party's", "none"],
)
def test_a_proof_of_anything_else_is_refused_and_its_party_named(proofs: object) -> None:
    sent = {name: PROVERS[name].proofs(7, NAMES, about=ABOUT) for name in NAMES}
    sent["b"] = proofs()  # type: ignore[operator]
    with pytest.raises(SetError, match=r"^b does not confirm that round 7 sums over a, b, c, d"):
        PROVERS["a"].check(7, NAMES, relayed(NAMES, sent, sent)["a"], about=ABOUT)


# Where so many of all parties confirm a set, also those outside of it: FedVS.


def test_enough_parties_confirm_a_set_to_all_others() -> None:
    members = ("a", "b", "d")
    sent = {name: PROVERS[name].proofs(7, members, to=NAMES, about=ABOUT) for name in ("a", "c", "d")}
    received = relayed(NAMES, sent, NAMES)
    for name in ("a", "c", "d"):
        PROVERS[name].check(7, members, received[name], enough=3, about=ABOUT)
    with pytest.raises(SetError, match="shows that 3 parties confirm that round 7 sums over a, b, d, and 4 have to"):
        PROVERS["a"].check(7, members, received["a"], enough=4, about=ABOUT)


def test_a_proof_of_another_set_is_refused_although_enough_others_confirm() -> None:
    members = ("a", "b", "d")
    sent = {name: PROVERS[name].proofs(7, members, to=NAMES, about=ABOUT) for name in NAMES}
    sent["c"] = PROVERS["c"].proofs(7, NAMES, about=ABOUT)
    with pytest.raises(SetError, match=r"^c does not confirm that round 7 sums over a, b, d"):
        PROVERS["a"].check(7, members, relayed(NAMES, sent, NAMES)["a"], enough=3, about=ABOUT)
