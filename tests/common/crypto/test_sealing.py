"""Sealed boxes between parties: every alteration in transit is detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from itertools import permutations
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.crypto.lengths import KEY_BYTES, OVERHEAD
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.sealing import (
    Agreement,
    Offer,
    Pairing,
    PairKeys,
    SealError,
    Seals,
    Session,
    TranscriptError,
)
from colonnade.common.crypto.signatures import ForgedError
from colonnade.common.errors import ConfigError

NAMES = ("ada", "bob", "eve")
SESSION = Session("digits", "run 1", 7, {"seed": "0", "batch": "1"})
PAIRS = list(permutations(NAMES, 2))

# Points of small order on Curve25519 (RFC 7748, Section 6.1): with them every secret is zero.
SMALL_ORDER = (
    bytes(32),
    bytes([1, *[0] * 31]),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    bytes.fromhex("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
    (2**255 - 19).to_bytes(32, "little"),
    (2**255 - 20).to_bytes(32, "little"),
)


class Parties:
    """Three parties with certificates."""

    def __init__(self, folder: Path) -> None:
        self.pins = make_federation(folder, NAMES)
        self._identities = {name: load_identity(folder / name) for name in NAMES}

    def begin(self, name: str, session: Session = SESSION, *, by: str = "") -> Agreement:
        """A party's side, signed by another where one is named."""
        return Agreement(name, session, self._identities[by or name])


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    return Parties(tmp_path_factory.mktemp("sealing") / "certs")


def everyone(make: Callable[[str], Agreement], pins: dict[str, str]) -> dict[str, Seals]:
    """All parties' seals after an undisturbed agreement."""
    return {name: keys.seals for name, keys in agreed({name: make(name) for name in NAMES}, pins).items()}


def agreed(sides: dict[str, Agreement], pins: dict[str, str]) -> dict[str, PairKeys]:
    """Results of all members after an undisturbed agreement."""
    offers = {name: side.offer() for name, side in sides.items()}
    pairings = {name: side.meet(offers, pins) for name, side in sides.items()}
    return {name: pairing.confirm(shown_to(name, pairings)) for name, pairing in pairings.items()}


def shown_to(name: str, pairings: dict[str, Pairing]) -> dict[str, bytes]:
    """The proofs that a party is shown."""
    return {other: pairing.proofs()[name] for other, pairing in pairings.items() if other != name}


def digest(offers: dict[str, Offer], session: Session = SESSION) -> str:
    """The digest of a ring without certificates, computed again."""
    members = "".join(f', "{name}", "{offers[name].key.hex()}", ""' for name in sorted(offers))
    told = json.dumps(json.dumps(session.told()))
    head = f'["{session.federation}", "{session.run}", {session.number}, '
    agreed_on = f'{head}[["batch", "1"], ["seed", "0"]], "ring", {told}, ""'
    return sha256(f"{agreed_on}{members}]".encode()).hexdigest()


@pytest.fixture(scope="module")
def seals(parties: Parties) -> dict[str, Seals]:
    return everyone(parties.begin, parties.pins)


# A session.


def test_a_session_with_another_value_says_so() -> None:
    """Also where the first one has been encoded before."""
    SESSION.told(), SESSION.transcript("x")
    for field in ("section", "run", "session"):
        other = {
            "section": replace(SESSION, config={**SESSION.config, "batch": "2"}),
            "run": replace(SESSION, run="other"),
            "session": replace(SESSION, number=SESSION.number + 1),
        }[field]
        assert [part for part, value in other.told().items() if value != SESSION.told()[part]] == [field]
        assert other.transcript("x") != SESSION.transcript("x")


def test_a_transcript_is_one_list() -> None:
    for more in ((), ("a",), ("a", 3, "")):
        head = [SESSION.federation, SESSION.run, SESSION.number, sorted(map(list, SESSION.config.items()))]
        assert SESSION.transcript(*more) == json.dumps([*head, *more]).encode()


# An undisturbed agreement.


@pytest.mark.parametrize(("sender", "receiver"), PAIRS)
def test_every_party_agrees_with_every_other(seals: dict[str, Seals], sender: str, receiver: str) -> None:
    box = seals[sender].seal(receiver, b"hello", "model", 3, 0)
    assert seals[receiver].open(sender, box, "model", 3, 0) == b"hello"


def test_without_identities_it_works_unsigned() -> None:
    side = Agreement("ada", SESSION, None)
    assert (side.offer().certificate, side.offer().signature) == (b"", b"")
    seals = everyone(lambda name: Agreement(name, SESSION, None), {})
    for sender, receiver in PAIRS:
        assert seals[receiver].open(sender, seals[sender].seal(receiver, b"hello")) == b"hello"


def test_an_offer_is_a_key_a_certificate_and_a_signature(parties: Parties) -> None:
    one, two = parties.begin("ada"), parties.begin("ada")
    assert len(one.offer().key) == KEY_BYTES and one.offer().signature
    assert one.offer().key == one.offer().key != two.offer().key


def test_the_keys_are_those_of_the_primitives() -> None:
    """X25519, HKDF-SHA256 and AES-256-GCM combined again, from ada's private key."""
    ada, bob = Agreement("ada", SESSION, None), Agreement("bob", SESSION, None)
    offers = {"ada": ada.offer(), "bob": bob.offer()}
    box = agreed({"ada": ada, "bob": bob}, {})["bob"].seals.seal("ada", b"hello", "model", 3)
    secret = ada._private.exchange(x25519.X25519PublicKey.from_public_bytes(offers["bob"].key))
    info = f'["digits", "run 1", 7, [["batch", "1"], ["seed", "0"]], "sealed", "{digest(offers)}", "bob", "ada"]'
    key = HKDF(hashes.SHA256(), 32, salt=None, info=info.encode()).derive(secret)
    assert AESGCM(key).decrypt(box[:12], box[12:], b'["model", 3]') == b"hello"


@given(content=st.binary(max_size=200))
def test_the_overhead_is_exact(seals: dict[str, Seals], content: bytes) -> None:
    box = seals["ada"].seal("bob", memoryview(content), "data", 0, 0)
    assert len(box) == len(content) + OVERHEAD
    assert seals["bob"].open("ada", memoryview(box), "data", 0, 0) == content


def test_nonces_never_repeat_and_equal_contents_give_different_boxes(seals: dict[str, Seals]) -> None:
    boxes = [seals["ada"].seal(to, b"same") for _ in range(2000) for to in ("bob", "eve")]
    assert len({box[:12] for box in boxes[::2]}) == len({box[:12] for box in boxes[1::2]}) == 2000
    assert len({box[12:] for box in boxes}) == 4000


# Keys for masks.


def test_every_pair_has_one_key_for_masks_and_no_two_pairs_the_same(parties: Parties) -> None:
    found = agreed({name: parties.begin(name) for name in NAMES}, parties.pins)
    keys = {name: each.masks for name, each in found.items()}
    assert all(set(keys[name]) == {*NAMES} - {name} for name in NAMES)
    assert all(keys[one][other] == keys[other][one] for one, other in PAIRS)
    assert len({keys[one][other] for one, other in PAIRS}) == 3


def test_a_key_for_masks_is_that_of_the_primitives_and_seals_nothing() -> None:
    """Another use than "sealed", both parties in the order of their names, regardless of which derives."""
    zoe, bob = Agreement("zoe", SESSION, None), Agreement("bob", SESSION, None)
    offers = {"zoe": zoe.offer(), "bob": bob.offer()}
    secret = zoe._private.exchange(x25519.X25519PublicKey.from_public_bytes(offers["bob"].key))
    info = f'["digits", "run 1", 7, [["batch", "1"], ["seed", "0"]], "masks", "{digest(offers)}", "bob", "zoe"]'
    key = HKDF(hashes.SHA256(), 32, salt=None, info=info.encode()).derive(secret)
    found = agreed({"zoe": zoe, "bob": bob}, {})
    assert found["zoe"].masks == {"bob": key} and found["bob"].masks == {"zoe": key}
    box = found["zoe"].seals.seal("bob", b"hello")
    with pytest.raises(InvalidTag):
        AESGCM(key).decrypt(box[:12], box[12:], b"[]")


# Alterations of a box in transit.


@given(data=st.data(), content=st.binary(max_size=60))
def test_no_byte_of_a_box_can_change(seals: dict[str, Seals], data: st.DataObject, content: bytes) -> None:
    box = bytearray(seals["ada"].seal("bob", content, "model", 3, 0))
    place = data.draw(st.integers(0, len(box) - 1))
    box[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(SealError, match=r"^what 'ada' sealed for 'bob' \(model 3 0\) cannot be opened: it was altered"):
        seals["bob"].open("ada", bytes(box), "model", 3, 0)


@given(data=st.data())
def test_a_box_cut_short_or_made_longer_is_noticed(seals: dict[str, Seals], data: st.DataObject) -> None:
    box = seals["ada"].seal("bob", b"0123456789", "model", 3, 0)
    changed = data.draw(st.one_of(st.integers(0, len(box) - 1).map(lambda cut: box[:cut]), st.just(box + b"\0")))
    with pytest.raises(SealError):
        seals["bob"].open("ada", changed, "model", 3, 0)


@pytest.mark.parametrize(
    "context",
    [("data", 3, 0), ("model", 4, 0), ("model", 3, 1), ("model", 3), ("model", 3, 0, 0), ("model", "3", 0),
     ("model", 30), ()],
    ids=["purpose", "round", "stage", "no stage", "one more", "a word for a number", "run together", "none"],
)  # fmt: skip
def test_a_box_of_another_context_is_not_opened(seals: dict[str, Seals], context: tuple[str | int, ...]) -> None:
    box = seals["ada"].seal("bob", b"hello", "model", 3, 0)
    with pytest.raises(SealError):
        seals["bob"].open("ada", box, *context)


@pytest.mark.parametrize(
    ("sender", "reader", "claimed"),
    [("ada", "eve", "ada"), ("ada", "ada", "bob"), ("eve", "bob", "ada")],
    ids=["opened by another", "sent back", "in another's name"],
)
def test_a_box_is_for_one_direction_of_one_pair(
    seals: dict[str, Seals], sender: str, reader: str, claimed: str
) -> None:
    box = seals[sender].seal("bob", b"hello", "model", 3, 0)
    with pytest.raises(SealError, match=f"what '{claimed}' sealed for '{reader}'"):
        seals[reader].open(claimed, box, "model", 3, 0)


def test_a_box_of_an_earlier_session_is_not_opened(parties: Parties, seals: dict[str, Seals]) -> None:
    box = seals["ada"].seal("bob", b"hello", "model", 3, 0)
    later = everyone(lambda name: parties.begin(name, replace(SESSION, number=8)), parties.pins)
    with pytest.raises(SealError):
        later["bob"].open("ada", box, "model", 3, 0)


@pytest.mark.parametrize(
    "other",
    [replace(SESSION, federation="other"), replace(SESSION, run="run 2"), replace(SESSION, number=8),
     replace(SESSION, config={"seed": "1", "batch": "1"}), replace(SESSION, config={}), replace(SESSION, round=40),
     replace(SESSION, backed_off=1), replace(SESSION, roster={"bob": "other"})],
    ids=["federation", "run", "session", "a value", "no values", "round", "back-offs", "roster"],
)  # fmt: skip
def test_parties_of_different_sessions_do_not_confirm_their_keys(other: Session) -> None:
    """Unsigned, so that they differ only in the derivation."""
    sides = {"ada": Agreement("ada", SESSION, None), "bob": Agreement("bob", other, None)}
    with pytest.raises(TranscriptError, match=r"^bob was told "):
        agreed(sides, {})
    offers = {name: replace(side.offer(), told=b"") for name, side in sides.items()}
    said = {  # a server that alters unsigned offers, so that they seem equal
        name: {other: replace(offer, told=sides[name].offer().told) for other, offer in offers.items()}
        for name in sides
    }
    pairings = {name: side.meet(said[name], {}) for name, side in sides.items()}
    with pytest.raises(ForgedError, match="'bob' does not confirm the agreed keys"):
        pairings["ada"].confirm(shown_to("ada", pairings))


def test_the_order_in_which_a_configuration_is_written_does_not_matter() -> None:
    turned = replace(SESSION, config=dict(reversed(SESSION.config.items())))
    assert turned.transcript("x") == SESSION.transcript("x") != SESSION.transcript("x", "")


# Confirmation of keys.


def pairings(parties: Parties) -> dict[str, Pairing]:
    sides = {name: parties.begin(name) for name in NAMES}
    offers = {name: side.offer() for name, side in sides.items()}
    return {name: side.meet(offers, parties.pins) for name, side in sides.items()}


@pytest.mark.parametrize("byte", [0, 31])
def test_a_proof_that_was_altered_is_refused_by_name(parties: Parties, byte: int) -> None:
    all_of_them = pairings(parties)
    shown = {name: bytearray(proof) for name, proof in shown_to("ada", all_of_them).items()}
    shown["eve"][byte] ^= 1
    with pytest.raises(ForgedError, match=r"^'eve' does not confirm the agreed keys: it was shown other keys"):
        all_of_them["ada"].confirm(shown)


def test_a_proof_is_for_one_direction_of_one_pair(parties: Parties) -> None:
    all_of_them = pairings(parties)
    ada, shown = all_of_them["ada"], shown_to("ada", all_of_them)
    for wrong in (ada.proofs()["bob"], shown["eve"], all_of_them["bob"].proofs()["eve"], b""):
        with pytest.raises(ForgedError, match="'bob' does not confirm"):
            ada.confirm({**shown, "bob": wrong})
    with pytest.raises(ForgedError, match="'bob' does not confirm"):
        ada.confirm({"eve": shown["eve"]})


# Substitutes for an offer by a dishonest server.


def finish(parties: Parties, **offers: Offer) -> Pairing:
    """Ada's end of an agreement in which some offers are replaced."""
    ada = parties.begin("ada")
    given = {"ada": ada.offer(), **{name: parties.begin(name).offer() for name in ("bob", "eve")}}
    return ada.meet({**given, **offers}, parties.pins)


def test_a_key_that_the_server_puts_in_between_is_refused(parties: Parties) -> None:
    servers_own = Agreement("bob", SESSION, None).offer().key
    with pytest.raises(ForgedError, match=r"^the key of 'bob' is not signed by 'bob'"):
        finish(parties, bob=replace(parties.begin("bob").offer(), key=servers_own))


@pytest.mark.parametrize(
    "session",
    [replace(SESSION, number=8), replace(SESSION, run="run 2"), replace(SESSION, federation="other"),
     replace(SESSION, config={"seed": "1", "batch": "1"})],
    ids=["session", "run", "federation", "configuration"],
)  # fmt: skip
def test_an_offer_for_something_else_is_refused(parties: Parties, session: Session) -> None:
    with pytest.raises(TranscriptError, match=r"^bob was told .*(session 8, we were|run run 2, we were|hash)"):
        finish(parties, bob=parties.begin("bob", session).offer())
    with pytest.raises(ForgedError, match=r"^the key of 'bob' is not signed by 'bob', or was for another session"):
        finish(parties, bob=replace(parties.begin("bob", session).offer(), told=parties.begin("bob").offer().told))


def test_anothers_offer_is_refused(parties: Parties) -> None:
    with pytest.raises(ForgedError, match=r"^'bob' comes with the certificate .* of 'eve'"):
        finish(parties, bob=parties.begin("eve").offer())
    with pytest.raises(ForgedError, match=r"^'bob' comes with the certificate .* of 'eve'"):
        finish(parties, bob=parties.begin("bob", by="eve").offer())


def test_an_offer_by_another_certificate_of_that_name_is_refused(parties: Parties, tmp_path: Path) -> None:
    make_federation(tmp_path / "certs", NAMES)
    strangers = Agreement("bob", SESSION, load_identity(tmp_path / "certs" / "bob"))
    with pytest.raises(ForgedError, match=r"^'bob' comes with the certificate .* of 'bob', the roster pins"):
        finish(parties, bob=strangers.offer())


@pytest.mark.parametrize("lacking", ["certificate", "signature"])
def test_a_party_with_a_certificate_refuses_an_unsigned_offer(parties: Parties, lacking: str) -> None:
    with pytest.raises(ForgedError, match="'bob'"):
        finish(parties, bob=replace(parties.begin("bob").offer(), **{lacking: b""}))


def test_our_own_key_returned_altered_is_refused(parties: Parties) -> None:
    with pytest.raises(SealError, match=r"^the key of 'ada' was replaced$"):
        finish(parties, ada=parties.begin("ada").offer())


def test_with_an_identity_and_no_pin_it_refuses(parties: Parties) -> None:
    ada, bob = parties.begin("ada"), parties.begin("bob")
    with pytest.raises(ConfigError, match=r"^federation\.parties\.bob: no certificate fingerprint$"):
        ada.meet({"ada": ada.offer(), "bob": bob.offer()}, {"ada": parties.pins["ada"], "bob": ""})


@pytest.mark.parametrize(
    "key",
    [*SMALL_ORDER, b"", bytes(31), bytes(33), b"\x07" * 31],
    ids=["zero", "one", "order 8", "order 8 too", "p", "p - 1", "none", "31 zeros", "33 zeros", "31 bytes"],
)
def test_a_key_that_is_none_is_refused_signed_or_not(parties: Parties, key: bytes) -> None:
    """A party itself may be the dishonest one."""
    ada, bob = Agreement("ada", SESSION, None), parties.begin("bob")
    with pytest.raises(SealError, match=r"^'bob' offers no usable key: "):
        ada.meet({"ada": ada.offer(), "bob": Offer(key)}, {})
    bob._public = key
    with pytest.raises(SealError, match=r"^'bob' offers no usable key: "):
        finish(parties, bob=bob.offer())
