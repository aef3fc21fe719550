"""Blinding: masks cancel to the last bit, hide everything else and are used once; the paper's constant hides little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.aggregation.masks import Blinder, BlindError
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.sealing import Agreement, Session
from colonnade.common.errors import InputError

ROSTER = ("zoe", "ada", "bob", "eve", "kim", "dan")  # not in the alphabet's order
LARGE = 2**21
ABOUT = bytes(32)


def keys(name: str) -> dict[str, bytes]:
    """The same at both ends, and the same in every run."""
    return {other: sha256(" ".join(sorted((name, other))).encode()).digest() for other in ROSTER if other != name}


def blinder(name: str, least: int = 2) -> Blinder:
    return Blinder(name, ROSTER, keys(name), least=least)


def embedding(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def blind(ring: Ring, embeddings: dict[str, Tensor], round: int = 1, stage: int = 0) -> dict[str, Tensor]:
    """Messages of every party of a set."""
    return {
        name: blinder(name).blind(ring.encode(part), round, stage, list(embeddings), ABOUT)
        for name, part in embeddings.items()
    }


def summed(ring: Ring, messages: dict[str, Tensor]) -> Tensor:
    return ring.total(torch.stack(list(messages.values())))


def is_uniform(words: Tensor) -> bool:
    """Tests the frequencies of every word's highest and lowest bytes."""
    found = words.flatten().numpy().view(np.uint8).reshape(-1, words.element_size())
    counts = [np.bincount(found[:, place], minlength=256) for place in (0, -1)]
    return all(stats.chisquare(count).pvalue > 1e-4 for count in counts)


def are_unrelated(x: Tensor, y: Tensor) -> bool:
    one, other = (part.flatten().double().numpy() for part in (x, y))
    return abs(np.corrcoef(one, other)[0, 1]) < 5 / np.sqrt(len(one))


# Masks cancel.


@pytest.mark.parametrize("bits", [32, 64])
@given(st.data(), st.integers(2, 6), st.integers(0, 999))
def test_over_every_set_the_sum_is_that_of_fixed_point(bits: int, data: st.DataObject, size: int, seed: int) -> None:
    chosen = data.draw(st.permutations(ROSTER))[:size]
    ring = Ring(2.0, size, bits)
    parts = {name: embedding(3, 5, seed=seed + place) for place, name in enumerate(chosen)}
    total = summed(ring, blind(ring, parts, round=seed))
    words = [ring.encode(part).flatten().tolist() for part in parts.values()]
    assert total.flatten().tolist() == [sum(column) for column in zip(*words, strict=True)]
    clipped = torch.stack([part.double().clamp(-2, 2) for part in parts.values()]).sum(0)
    assert ((ring.decode(total) - clipped).abs() <= ring.error + 1e-14).all()


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6])
def test_masks_of_any_shape_cancel_for_all_sets_of_a_size(size: int) -> None:
    for shape in [(), (0, 3), (70_000,)]:  # more than a keystream is cut into
        for chosen in list(combinations(ROSTER, size))[:3]:
            messages = blind(Ring(1.0, 6), {name: torch.zeros(shape) for name in chosen})
            assert not summed(Ring(1.0, 6), messages).any()
            assert all(message.shape == shape for message in messages.values())


def test_words_in_any_order_of_memory_are_blinded_in_their_own() -> None:
    ring, part = Ring(4.0, 2), embedding(7, 5)
    straight = blinder("ada").blind(ring.encode(part), 1, 0, ("ada", "bob"), ABOUT)
    turned = ring.encode(part.mT.contiguous()).mT
    before = turned.clone()
    assert torch.equal(blinder("ada").blind(turned, 1, 0, ("ada", "bob"), ABOUT), straight)
    assert torch.equal(turned, before)  # the input is unchanged


# Masks hide.


@pytest.mark.parametrize("bits", [32, 64])
def test_blinded_values_are_uniform_and_independent_of_the_data(bits: int) -> None:
    ring, part = Ring(4.0, 3, bits), embedding(LARGE // 64, 64)
    sent = blinder("bob").blind(ring.encode(part), 1, 0, ("zoe", "bob", "eve"), ABOUT)
    assert is_uniform(sent) and are_unrelated(sent, part)
    assert not is_uniform(ring.encode(part))  # so that the test can fail


@pytest.mark.parametrize("other", [(2, 0), (1, 1)], ids=["round", "stage"])
def test_masks_of_two_rounds_or_stages_are_unrelated(other: tuple[int, int]) -> None:
    zeros, ada = torch.zeros(LARGE, dtype=torch.int32), blinder("ada")
    one, two = ada.blind(zeros, 1, 0, ROSTER, ABOUT), ada.blind(zeros, *other, ROSTER, ABOUT)
    assert are_unrelated(one, two) and is_uniform(one - two) and is_uniform(one + two)


def test_masks_of_other_sets_shapes_and_widths_are_unrelated() -> None:
    """Each difference would be zero if the keys did not depend on it."""
    zeros, trio = torch.zeros(600, 600, dtype=torch.int32), ("ada", "bob", "eve")
    mask = blinder("ada").blind(zeros, 1, 0, trio, ABOUT)
    with_bob, with_eve = (blinder("ada").blind(zeros, 1, 0, ("ada", other), ABOUT) for other in trio[1:])
    reshaped = blinder("ada").blind(zeros.reshape(300, 1200), 1, 0, trio, ABOUT).reshape(600, 600)
    lower_halves = blinder("ada").blind(zeros.long(), 1, 0, trio, ABOUT).int()
    other_rows = blinder("ada").blind(zeros, 1, 0, trio, b"other rows")
    assert is_uniform(mask - other_rows)
    assert is_uniform(mask - with_bob - with_eve)
    assert is_uniform(mask - reshaped)
    assert is_uniform(mask.flatten()[::2] - lower_halves.flatten()[: zeros.numel() // 2])


def test_without_one_partys_message_there_is_noise_and_no_partial_sum() -> None:
    ring, names = Ring(4.0, 4), ROSTER[:4]
    parts = {name: embedding(LARGE // 64, 64, seed=place) for place, name in enumerate(names)}
    messages = blind(ring, parts)
    assert ring.fits(summed(ring, messages))
    for absent in names:
        rest = {name: message for name, message in messages.items() if name != absent}
        left, partial = summed(ring, rest), torch.stack([parts[name] for name in rest]).sum(0)
        assert is_uniform(left) and are_unrelated(left, partial) and are_unrelated(left, parts[absent])
        assert not ring.fits(left)


def test_a_mask_is_that_of_the_primitives_with_the_signs_of_eq_4() -> None:
    """HMAC-SHA256 and ChaCha20 implemented again, summed by Python's integers."""
    message = sha256(f'[3, 1, ["zoe", "bob", "dan"], [2, 3], 32, "{ABOUT.hex()}"]'.encode()).digest()
    total = [0] * 6
    for other, sign in (("zoe", -1), ("dan", 1)):
        mac = HMAC(keys("bob")[other], SHA256())
        mac.update(message)
        stream = Cipher(ChaCha20(mac.finalize(), bytes(16)), mode=None).encryptor().update(bytes(24))
        total = [t + sign * int.from_bytes(stream[4 * i : 4 * i + 4], "little") for i, t in enumerate(total)]
    sent = blinder("bob").blind(torch.arange(6, dtype=torch.int32).reshape(2, 3), 3, 1, {"dan", "zoe", "bob"}, ABOUT)
    assert [word % 2**32 for word in sent.flatten().tolist()] == [(i + t) % 2**32 for i, t in enumerate(total)]


# The paper's own rule, which adds one number to everything: Eqs. 4 and 5 as they stand.


def constants(names: Sequence[str]) -> dict[str, int]:
    """r_k of Eq. 4, H being 24 bits of SHA-256: whole numbers, so that real sums round nothing."""
    hashed = {
        frozenset(pair): int.from_bytes(sha256("/".join(sorted(pair)).encode()).digest()[:3])
        for pair in combinations(names, 2)
    }
    return {
        one: sum((-1) ** (k > j) * hashed[frozenset((one, other))] for j, other in enumerate(names) if other != one)
        for k, one in enumerate(names)
    }


def rounds(count: int) -> list[Tensor]:
    """One party's embeddings, multiples of 2^-16."""
    return [(embedding(2000, 16, seed=t).double() * 2**16).round() / 2**16 for t in range(count)]


def test_a_constant_cancels_but_reveals_differences_between_rows_and_rounds_exactly() -> None:
    r = constants(ROSTER)
    assert sum(r.values()) == 0 and all(abs(constant) > 2**16 for constant in r.values())
    first, second = rounds(2)
    sent, later = first + r["bob"], second + r["bob"]
    assert torch.equal(sent - sent[0, 0], first - first[0, 0])  # all of it, but for one number
    assert torch.equal(sent[1:] - sent[:-1], first[1:] - first[:-1])
    assert torch.equal(later - sent, second - first)


def test_ours_reveals_no_difference_between_rows_or_rounds() -> None:
    ring, bob = Ring(4.0, 6), blinder("bob")
    first, second = rounds(2)
    sent, later = (
        bob.blind(ring.encode(first), 1, 0, ROSTER, ABOUT),
        bob.blind(ring.encode(second), 2, 0, ROSTER, ABOUT),
    )
    for seen, true in [
        (sent - sent[0, 0], first),
        (sent[1::2] - sent[::2], first[1::2] - first[::2]),
        (sent[:, 1::2] - sent[:, ::2], first[:, 1::2] - first[:, ::2]),
        (later - sent, second - first),
    ]:
        assert is_uniform(seen) and are_unrelated(seen, true)


# Refusals.


@pytest.mark.parametrize("again", [ROSTER, ROSTER[:4]], ids=["the same set", "another"])
def test_a_round_and_stage_are_blinded_once(again: tuple[str, ...]) -> None:
    words, ada = torch.ones(3, dtype=torch.int32), blinder("ada")
    ada.blind(words, 4, 0, ROSTER, ABOUT)
    with pytest.raises(BlindError, match=r"^'ada' does not blind round 4, stage 0: it has done so before$"):
        ada.blind(words, 4, 0, again, ABOUT)
    ada.blind(words, 4, 1, again, ABOUT)
    ada.blind(words, 5, 0, again, ABOUT)


@pytest.mark.parametrize("before", [(3, 0), (3, 9), (4, 0)])
def test_rounds_and_stages_only_increase(before: tuple[int, int]) -> None:
    words, ada = torch.ones(3, dtype=torch.int32), blinder("ada")
    ada.blind(words, 4, 1, ROSTER, ABOUT)
    with pytest.raises(BlindError, match=r"it has blinded round 4, stage 1 since$"):
        ada.blind(words, *before, ROSTER, b"other rows")
    ada.blind(words, 4, 2, ROSTER, ABOUT)


@pytest.mark.parametrize(
    ("parties", "reason"),
    [(("ada", "bob"), "the sum is of 2 parties, at least 3 are needed"),
     (("ada", "bob", "bob", "ada"), "the sum is of 2 parties"), (("ada",), "the sum is of 1 parties"),
     (("bob", "eve", "kim"), "it is not among the parties"), ((), "it is not among the parties"),
     (("ada", "bob", "sue"), "'sue' is not in the roster")],
)  # fmt: skip
def test_a_set_that_hides_nothing_is_refused_and_uses_nothing_up(parties: tuple[str, ...], reason: str) -> None:
    words, ada = torch.ones(3, dtype=torch.int32), blinder("ada", least=3)
    with pytest.raises(BlindError, match=rf"^'ada' does not blind round 7, stage 2: {reason}"):
        ada.blind(words, 7, 2, parties, ABOUT)
    assert ada.blind(words, 7, 2, ("ada", "bob", "eve"), ABOUT).shape == (3,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int16])
def test_values_that_are_not_encoded_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(InputError, match=f"'ada' blinds words of {dtype}"):
        blinder("ada").blind(torch.ones(3, dtype=dtype), 1, 0, ROSTER, ABOUT)


def test_a_blinder_without_a_place_keys_or_a_sum_is_refused() -> None:
    with pytest.raises(InputError, match="'sue' cannot blind: it has no place in the roster"):
        Blinder("sue", ROSTER, keys("sue"), least=2)
    with pytest.raises(InputError, match="'ada' cannot blind: it has no key for 'eve'"):
        Blinder("ada", ROSTER, {name: key for name, key in keys("ada").items() if name != "eve"}, least=2)
    with pytest.raises(InputError, match="'ada' would blind for 1 parties, which hides nothing"):
        blinder("ada", least=1)


# The keys, from an agreement.


def agreed(make: Callable[[str], Agreement], pins: dict[str, str], names: Sequence[str]) -> dict[str, dict[str, bytes]]:
    sides = {name: make(name) for name in names}
    offers = {name: side.offer() for name, side in sides.items()}
    pairings = {name: side.meet(offers, pins) for name, side in sides.items()}
    shown = {name: {other: pairings[other].proofs()[name] for other in names if other != name} for name in names}
    return {name: pairing.confirm(shown[name]).masks for name, pairing in pairings.items()}


def test_parties_that_have_agreed_under_their_certificates_blind_together(tmp_path: Path) -> None:
    names, session = ROSTER[:3], Session("digits", "run 1", 7)
    pins = make_federation(tmp_path / "certs", names)
    all_keys = agreed(lambda name: Agreement(name, session, load_identity(tmp_path / "certs" / name)), pins, names)
    sent = [
        Blinder(name, names, all_keys[name], least=3).blind(
            torch.tensor([place], dtype=torch.int32), 1, 0, names, ABOUT
        )
        for place, name in enumerate(names)
    ]
    assert Ring(1.0, 3).total(torch.stack(sent)).tolist() == [0 + 1 + 2]
