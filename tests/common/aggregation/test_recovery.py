"""Sums under double masks: recovered by any t parties, of whom nothing else is opened; settings that conflict."""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Collection, Sequence
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.aggregation.masks import Blinder, BlindError, remove_masks
from colonnade.common.aggregation.messages import OpenedShares, SealedShares
from colonnade.common.aggregation.recovery import SharedKeys, Sharing, recover
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.errors import ConfigError
from tests.protocols.test_blinded import BLIND, run
from tests.support.federation import config

SHAPE = (3, 4)
ABOUT = bytes(32)


class Parties:
    """All parties of a session, with the keys that the key agreement would give them."""

    def __init__(self, count: int, threshold: int, first: int = 1) -> None:
        self.names, self.sharing = [f"p{k}" for k in range(count)], Sharing(threshold, count)
        pairs = {frozenset(pair): os.urandom(32) for pair in combinations(self.names, 2)}
        self.keys = {
            name: {other: pairs[frozenset({name, other})] for other in self.names if other != name}
            for name in self.names
        }
        self.shared = {
            name: SharedKeys(name, self.names, self.keys[name], self.sharing, least=2) for name in self.names
        }
        self.blinders = {name: Blinder(name, self.names, self.keys[name], least=2) for name in self.names}
        self.dealt = {name: shared.deal(first) for name, shared in self.shared.items()}

    def masked(self, name: str, words: Tensor, round: int, laid: Collection[str]) -> Tensor:
        keys = self.shared[name].of_round(round)
        return self.blinders[name].blind(words, round, 0, laid, ABOUT, keys).as_subclass(Tensor)

    def opened(
        self, round: int, laid: Sequence[str], summed: Sequence[str], by: Sequence[str]
    ) -> dict[str, OpenedShares]:
        return {name: self.shared[name].open(round, laid, summed) for name in by}


def drawn(names: Sequence[str], dtype: torch.dtype = torch.int32) -> dict[str, Tensor]:
    most = torch.iinfo(dtype).max
    return {name: torch.randint(-most, most, SHAPE, dtype=dtype) for name in names}


@given(st.data())
def test_any_t_parties_recover_the_exact_sum_over_those_whose_words_arrived(data: st.DataObject) -> None:
    count = data.draw(st.integers(3, 9))
    threshold = data.draw(st.integers(2, count))
    laid = sorted(data.draw(st.permutations(range(count)))[: data.draw(st.integers(threshold, count))])
    summed = sorted(data.draw(st.permutations(laid))[: data.draw(st.integers(threshold, len(laid)))])
    openers = data.draw(st.permutations(summed))[:threshold]
    round, dtype = data.draw(st.integers(33, 64)), data.draw(st.sampled_from([torch.int32, torch.int64]))
    there = Parties(count, threshold, 33)
    over, of, by = ([there.names[k] for k in places] for places in (laid, summed, openers))
    words = drawn(over, dtype)
    total = sum(there.masked(name, words[name], round, over) for name in of)
    keys = recover(there.names, there.sharing, there.dealt, there.opened(round, over, of, by), over, of)
    found = remove_masks(total, round, 0, over, keys.own, keys.pairs, about=ABOUT)
    assert torch.equal(found, sum(words[name] for name in of))


def test_without_one_opened_key_no_word_of_the_sum_is_right() -> None:
    there = Parties(5, 3)
    over, of = there.names, there.names[:4]
    words = drawn(over)
    total = sum(there.masked(name, words[name], 7, over) for name in of)
    keys = recover(there.names, there.sharing, there.dealt, there.opened(7, over, of, of), over, of)
    wanted = sum(words[name] for name in of)
    for lacking in keys.own:
        own = {name: key for name, key in keys.own.items() if name != lacking}
        assert not (remove_masks(total, 7, 0, over, own, keys.pairs, about=ABOUT) == wanted).any()
    for lacking in keys.pairs:
        pairs = {pair: key for pair, key in keys.pairs.items() if pair != lacking}
        assert not (remove_masks(total, 7, 0, over, keys.own, pairs, about=ABOUT) == wanted).any()


def test_t_minus_1_openings_and_a_guess_give_other_keys() -> None:
    there = Parties(5, 3)
    opened = there.opened(1, there.names, there.names, there.names[:3])
    right = recover(there.names, there.sharing, there.dealt, opened, there.names, there.names)
    assert right.own == {name: there.shared[name].of_round(1).own for name in there.names}
    guessed = {**opened, "p2": OpenedShares(1, torch.randint(0, 256, (5, 32), dtype=torch.uint8))}
    wrong = recover(there.names, there.sharing, there.dealt, guessed, there.names, there.names)
    assert all(wrong.own[name] != right.own[name] for name in there.names)


def test_a_late_message_stays_hidden_by_its_own_mask_and_the_next_round_by_all() -> None:
    """Against masks that are computed here anew."""
    there = Parties(5, 3)
    over, of, late = there.names, there.names[:4], there.names[4]
    words = drawn(over)
    message = there.masked(late, words[late], 3, over)
    keys = recover(there.names, there.sharing, there.dealt, there.opened(3, over, of, of), over, of)
    assert set(keys.own) == set(of) and set(keys.pairs) == {(name, late) for name in of}
    known = {(late, name): key for (name, _), key in keys.pairs.items()}
    rest = remove_masks(message, 3, 0, over, {}, known, about=ABOUT) - words[late]
    assert torch.equal(rest, stream(there.shared[late].of_round(3).own, 3, over))  # one mask is left in every word
    assert there.shared[late].of_round(3).own not in keys.own.values()
    following = there.masked(late, words[late], 4, over)
    rest = remove_masks(following, 4, 0, over, {}, known, about=ABOUT) - words[late]
    own = stream(there.shared[late].of_round(4).own, 4, over)
    theirs = sum(stream(there.shared[late].of_round(4).pairs[name], 4, over) for name in of)
    used = sum(stream(keys.pairs[name, late], 4, over) for name in of)
    assert (
        torch.equal(rest, own - theirs + used) and not (rest == own).any()
    )  # round 3's keys remove nothing of round 4


def stream(key: bytes, round: int, parties: Sequence[str]) -> Tensor:
    context = sha256(json.dumps([round, 0, list(parties), list(SHAPE), 32, ABOUT.hex()]).encode()).digest()
    cipher = Cipher(ChaCha20(hmac.digest(key, context, "sha256"), bytes(16)), mode=None)
    return torch.from_numpy(np.frombuffer(cipher.encryptor().update(bytes(48)), "<i4").reshape(SHAPE).copy())


def test_a_party_opens_one_share_of_each_party_and_round() -> None:
    there = Parties(4, 3)
    names, party = there.names, there.shared["p0"]
    first = party.open(5, names, names[:3])
    for again in (5, 4):
        with pytest.raises(BlindError, match=f"opens no shares of round {again}: it has opened those of round 5"):
            party.open(again, names, names)
    other = SharedKeys("p0", names, there.keys["p0"], there.sharing, least=2).open(5, names, names)
    assert torch.equal(first.pads[1:3], other.pads[1:3]) and not torch.equal(first.pads[3], other.pads[3])


@pytest.mark.parametrize(
    ("laid", "summed", "error"),
    [
        ("p0 p1 p2 p3", "p1 p2 p3", "its words are not masked over that set"),
        ("p0 p1 p2", "p0 p1 p3", "its words are not masked over that set"),
        ("p0 p1 p2 p3", "p0 p1", "the sum is of 2 parties, at least 3 are needed"),
    ],
    ids=["without us", "of others", "too few"],
)
def test_a_set_that_hides_too_little_is_not_opened(laid: str, summed: str, error: str) -> None:
    with pytest.raises(BlindError, match=error):
        Parties(4, 3).shared["p0"].open(1, laid.split(), summed.split())


def test_secrets_are_shared_once_and_ahead_of_their_rounds() -> None:
    party = Parties(3, 2).shared["p0"]
    assert [party.due(round) for round in (1, 16, 17, 32, 33)] == [None, None, 33, 33, 33]
    party.deal(33)
    assert party.due(48) is None and party.due(49) == 65 and party.due(200) == 193
    with pytest.raises(BlindError, match="shares no keys of the rounds from 1 on again"):
        party.deal(1)
    with pytest.raises(BlindError, match="has shared no keys of round 65"):
        party.of_round(65)


def test_what_lies_at_the_server_is_fresh_and_of_the_declared_size() -> None:
    there = Parties(4, 3)
    sealed = there.dealt["p0"]
    assert isinstance(sealed, SealedShares)
    assert sealed.shares.shape == (32, 2, 4, 32) and sealed.pair_keys.shape == (32, 4, 32)
    rows = {bytes(row.tolist()) for part in (sealed.shares, sealed.pair_keys) for row in part.reshape(-1, 32)}
    assert len(rows) == 32 * 2 * 4 + 32 * 4


@pytest.mark.parametrize(
    ("name", "sets", "error", "hint"),
    [
        ("fdml", ("federation.blinding.least=5",), r"blinding\.least = 5: there are 4 parties", "take more parties"),
        ("fdml", ("federation.quorum={need: 2, grace: 1}",), r"quorum\.need = 2: .* at least 3", "{need: 3, grace"),
        (
            "fdml",
            ("federation.quorum={need: 2, grace: 1}", "federation.blinding.least=2"),
            r"quorum\.need = 2: sums of 2 of 4 parties: the server could split",
            "{need: 3, grace",
        ),
        ("fdml", ("federation.quorum={fastest: 3}",), r"quorum\.need = 3 without grace", "{need: 3, grace: SECONDS}"),
        ("fdml", ("federation.compress.up=8",), r"compress\.up = 8: masked words", "leave it out"),
        ("vimadmm_j", ("federation.participation=0.5",), r"participation = 0\.5: a blinded sum", "leave it out"),
        ("vimadmm_j", ("federation.protocol.update=variables",), r"protocol\.update = variables", "to signal"),
        ("split_avg", ("federation.protocol.combine=max",), r"protocol\.combine = max: only averages", "average"),
        ("split_avg", ("federation.protocol.arrivals=true",), r"protocol\.arrivals = true: only", "without arrivals"),
        ("fdml", ("federation.blinding.bits=16",), r"blinding\.bits = 16: expected 32 or 64", ""),
        ("fdml", ("federation.blinding.least=1",), r"blinding\.least = 1: expected at least 2", ""),
        ("fdml", ("federation.blinding.bound=1e-300",), r"bound = 1e-300: .* a number that float32 holds", ""),
    ],
)
def test_options_that_cannot_be_blinded_are_refused_with_an_alternative(
    name: str, sets: tuple[str, ...], error: str, hint: str
) -> None:
    with pytest.raises(ConfigError, match=error) as refused:
        config({**BLIND[name], "aggregate": "blinded"}, *sets)
    assert hint in str(refused.value.hint)


def test_a_party_requires_sums_of_three_by_default() -> None:
    """Two parties know each other's part from the sum."""
    blind = config({**BLIND["fdml"], "aggregate": "blinded"}, "federation.blinding.least=2").federation
    with pytest.raises(ConfigError, match=r"party1\.policy\.min_parties = 3: .* has blinding\.least = 2") as refused:
        PolicyConfig().refuse("party1", blind)
    assert "change your policy" in refused.value.hint
    PolicyConfig(min_parties=2).refuse("party1", blind)
    PolicyConfig().refuse("party1", config(BLIND["fdml"], "federation.blinding.least=2").federation)


def test_sums_of_two_are_warned_of() -> None:
    quorum = ("federation.parties=3", "federation.quorum={need: 2, grace: 1}")
    two = ("federation.blinding.least=2", *quorum, "every_party.policy.min_parties=2")
    reasons = {(e["party"], e["reason"]) for e in run("fdml", *two).of_kind("warning")}
    assert ("party3", "sums may be of two parties: either that shows its part to the server shows the other's") in (
        reasons
    )
