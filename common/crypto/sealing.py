"""End-to-end encryption between parties, whose messages the server forwards but must not read.

At the beginning of a session every party draws a fresh X25519 key and signs its public part and the session with the
key of its certificate: the server, which forwards the offers, cannot substitute a key of its own. An offer carries
everything that the server has told the party about the session (`Session.told`), so that a party that was told
something else is named, with the part that differs. Every ordered pair of parties derives a key of its own (HKDF over
all of that and the hash of the whole ring: all parties' names, keys and certificates), and every sealed box
(AES-256-GCM) is bound to its purpose, round, and place. Keys live in memory, for one session. Every unordered pair has
two more keys, for masks and for receipts, that neither seal nor open anything.

A key is used only after the other end has confirmed it: each party sends every other a value that only these two can
derive, and only from this ring. This refuses an offer that was signed in an earlier session of the same number, since
its private part is gone, and a ring that differs between parties. A second value proves that both know the same rows in
the same order (`Session.rows`), which no member says in the clear: all keys are derived over that too.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import count
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.common.crypto.lengths import KEY_BYTES
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.signatures import ForgedError, Signer, Verifier
from colonnade.common.errors import PeerError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import to_tensor
from colonnade.common.run.json_text import parse_json

Parts = Mapping[str, str | int]  # part of the beginning of a session -> its value, or its hash, in the order of `PARTS`

PARTS: Mapping[str, str] = {
    "section": "the agreed section",
    "roster": "the fingerprints of the roster",
    "run": "run",
    "session": "session",
    "round": "round",
    "backed_off": "number of back-offs",
    "parties": "the parties that are present",
    "offers": "the offered keys",
}
"""Parts of the beginning of a session in their fixed order, in words."""

_HASHED = ("section", "roster", "parties", "offers")
_LONGEST = 64  # characters of a value in an error

DISHONEST = (
    "the server has told the parties different things, or {other} states what it was not told: compare the "
    "`finding` events of both parties with {other}'s operator, over another channel (docs/transcript.md)"
)


class TranscriptError(PeerError):
    """Parties were told different things, or something between them is missing or altered.

    Args:
        other: the party whose statement differs from our record.
        round: 0 for the beginning of a session.
        ours, theirs: values or hashes.
    """

    telling = None

    def __init__(
        self, message: str, *, other: str, part: str, round: int = 0, ours: str = "", theirs: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint or DISHONEST.format(other=other))
        self.other, self.part, self.round, self.ours, self.theirs = other, part, round, ours, theirs

    def fields(self) -> dict[str, Any]:
        return {
            "other": self.other, "part": self.part, "round": self.round, "ours": self.ours, "theirs": self.theirs,
            "reason": str(self),
        }  # fmt: skip


def hash_of_values(values: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(values.items())).encode()).hexdigest()


def refuse_other_parts(other: str, theirs: Mapping[str, Any], ours: Parts, among: tuple[str, ...] = ()) -> None:
    """Compares what two parties were told at the beginning of a session; `among` are the parts, all of ours if empty.

    Raises TranscriptError if a part differs; names the first one and both values.
    """
    for part in among or tuple(ours):
        said, own = theirs.get(part), ours[part]
        if type(said) is not type(own) or said != own:
            raise _difference(other, part, str(said)[:_LONGEST], str(own)[:_LONGEST])


def _difference(other: str, part: str, theirs: str, ours: str) -> TranscriptError:
    name = PARTS[part]
    if part in _HASHED:
        text = f"{other} was told otherwise of {name} than we were: hash {theirs}, ours {ours}"
    else:
        text = f"{other} was told {name} {theirs}, we were told {name} {ours}"
    return TranscriptError(text, other=other, part=part, ours=ours, theirs=theirs)


_Context = str | int

_OTHER_ROWS = (
    "the server has aligned their rows differently, or one has another table: compare the number of common rows and "
    "the tables with {other}'s operator, and align again"
)


class SealError(PeerError):
    """A box was altered in transit, or does not match its declared context."""

    telling = None  # names of members, sizes and a round


@dataclass(frozen=True)
class Session:
    """Context of a key agreement; keys are bound to all of these fields, other derived values to the first four.

    Args:
        config: dotted key of the agreed section -> hash of its value.
        roster: member -> fingerprint of its certificate, the server among them.
        round: the round to continue after, 0 at the beginning.
        backed_off: number of times that the run went back after a divergence.
        parties: the participants of a prediction, which may be part of the roster; empty elsewhere.
        rows: hash of the rows that the party knows (common/aggregation/subject.py). Keys between parties are
            bound to it; the server, which could test guesses of the rows' keys against it, never sees it.
    """

    federation: str = ""
    run: str = ""
    number: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    roster: Mapping[str, str] = field(default_factory=dict)
    round: int = 0
    backed_off: int = 0
    parties: tuple[str, ...] = ()
    rows: str = ""

    def transcript(self, *more: _Context) -> bytes:
        """An unambiguous encoding of the session and of `more`: one JSON list."""
        return self._encoded + (b", " + json.dumps(more).encode()[1:] if more else b"]")

    @cached_property
    def _encoded(self) -> bytes:
        """The list without its end, cached: with many parties it is long, and each pair needs it."""
        return json.dumps([self.federation, self.run, self.number, sorted(self.config.items())]).encode()[:-1]

    def told(self) -> Parts:
        """Everything that the server has told a party about the session, in a fixed order."""
        return self._told

    @cached_property
    def _told(self) -> Parts:
        told: dict[str, str | int] = {
            "section": hash_of_values({"": self.federation, **self.config}),
            "roster": hash_of_values(self.roster),
            "run": self.run,
            "session": self.number,
            "round": self.round,
            "backed_off": self.backed_off,
        }
        return {**told, "parties": hash_of_values(dict.fromkeys(self.parties, ""))} if self.parties else told


@dataclass(frozen=True)
class Offer:
    """A party's public key for a session, signed.

    Args:
        key: X25519, 32 bytes.
        certificate: PEM; empty without TLS (loopback).
        signature: ECDSA over the party's name, the key and `told`; empty without a certificate.
        told: what the server has told the party of the session, JSON.
    """

    key: bytes
    certificate: bytes = b""
    signature: bytes = b""
    told: bytes = b""


class Agreement:
    """One party's side of a session's key agreement. Without an identity it signs nothing and accepts every offer."""

    def __init__(self, name: str, session: Session, identity: Identity | None) -> None:
        self._name, self._session, self._signer = name, session, Signer(identity)
        self._private = x25519.X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()

    def offer(self) -> Offer:
        told = json.dumps(self._session.told()).encode()
        signature = self._signer.sign(_content(self._name, self._public, told))
        return Offer(self._public, self._signer.certificate, signature, told)

    def meet(self, offers: Mapping[str, Offer], pins: Mapping[str, str], server: bytes = b"") -> Pairing:
        """Checks all offers, and derives keys with each of the others, to be used once they are confirmed.

        Args:
            server: the server's certificate, as forwarded with the offers.

        Raises:
            ForgedError: an offer is not its party's.
            TranscriptError: the server has described the session differently to a party; names the party and the part.
            SealError: an offer is not a key, or ours was replaced.
            ConfigError: we have a certificate, and the roster pins none for a party.
        """
        if offers[self._name].key != self._public:
            raise SealError(f"the key of {self._name!r} was replaced", hint="the server is not honest")
        secrets = {other: self._secret_with(other, offers[other], pins) for other in offers if other != self._name}
        return Pairing(self._name, self._session, _digest(self._session, offers, server), secrets)

    def _secret_with(self, other: str, offer: Offer, pins: Mapping[str, str]) -> bytes:
        """The X25519 secret of our key and another party's, after checking that the offer is its own."""
        if self._signer.certificate:
            verifier = Verifier(other, offer.certificate, pins.get(other, ""))
            verifier.check(f"the key of {other!r}", _content(other, offer.key, offer.told), offer.signature)
        secret = self._secret(other, offer.key)
        try:
            told = parse_json(offer.told)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            raise TranscriptError(f"{other} does not say what it was told", other=other, part="section")
        refuse_other_parts(other, told, self._session.told())
        return secret

    def _secret(self, other: str, key: bytes) -> bytes:
        try:
            return self._private.exchange(x25519.X25519PublicKey.from_public_bytes(key))
        except ValueError as bad:  # of another length, or of small order: the secret would be zero
            raise SealError(f"{other!r} offers no usable key: {bad}", hint="its software is faulty") from bad


@dataclass(frozen=True)
class PairKeys:
    """Keys that a party shares with the others, confirmed by all.

    Args:
        masks: a key of 32 bytes with each of the others, the same at both ends (common/aggregation/masks.py).
        receipts: likewise (client/transcript/receipts.py).
        offers: hash of all offers.
    """

    seals: Seals
    masks: dict[str, bytes]
    receipts: dict[str, bytes] = field(default_factory=dict)
    offers: str = ""


class Pairing:
    """The keys between one party and every other, bound to the ring's digest; `secrets` are from X25519."""

    def __init__(self, name: str, session: Session, digest: str, secrets: Mapping[str, bytes]) -> None:
        self._name, self._session, self._digest, self._secrets = name, session, digest, secrets

    def proofs(self) -> dict[str, bytes]:
        """Proofs to send, by party: of the keys and of the rows, values that only the two parties can derive."""
        return {other: self._proof(self._name, other, other) for other in self._secrets}

    def confirm(self, proofs: Mapping[str, bytes]) -> PairKeys:
        """The keys, if all the others have proved (`proofs`, by party) that they hold the same, for the same rows.

        Raises:
            ForgedError: a party has not proved the keys; the message names it.
            TranscriptError: a party has proved the keys but not the rows.
        """
        for other in self._secrets:
            expected, received = self._proof(other, self._name, other), proofs.get(other, b"")
            half = len(expected) // 2
            if not hmac.compare_digest(received[:half], expected[:half]):
                raise ForgedError(
                    f"{other!r} does not confirm the agreed keys: it was shown other keys than "
                    f"{self._name!r} was, or its own is from an earlier session",
                    hint="the server is not honest, or the two run different versions",
                )
            if not hmac.compare_digest(received[half:], expected[half:]):
                text = f"{other} does not have the same rows as {self._name}, in the same order"
                raise TranscriptError(text, other=other, part="rows", hint=_OTHER_ROWS.format(other=other))
        keys = {other: self._pair(other) for other in self._secrets}
        masks, receipts = (
            {other: self._derive_for_rows(other, use, *sorted([self._name, other])) for other in self._secrets}
            for use in ("masks", "receipts")
        )
        return PairKeys(Seals(self._name, keys), masks, receipts, self._digest)

    def _pair(self, other: str) -> tuple[AESGCM, AESGCM]:
        outward = self._derive_for_rows(other, "sealed", self._name, other)
        inward = self._derive_for_rows(other, "sealed", other, self._name)
        return AESGCM(outward), AESGCM(inward)

    def _proof(self, sender: str, receiver: str, other: str) -> bytes:
        """Proof of the keys, followed by that of the rows."""
        keys = self._derive(other, "proof", sender, receiver)
        return keys + self._derive_for_rows(other, "proof of rows", sender, receiver)

    def _derive_for_rows(self, other: str, use: str, one: str, two: str) -> bytes:
        """A key that only parties that know the same rows derive."""
        return self._derive(other, use, one, two, *([self._session.rows] if self._session.rows else []))

    def _derive(self, other: str, use: str, one: str, two: str, *more: str) -> bytes:
        info = self._session.transcript(use, self._digest, one, two, *more)
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(self._secrets[other])


def _content(name: str, key: bytes, told: bytes) -> bytes:
    return json.dumps(["colonnade offer", name, key.hex(), told.hex()]).encode()


def _digest(session: Session, offers: Mapping[str, Offer], server: bytes) -> str:
    members = [(name, offer.key.hex(), offer.certificate.hex()) for name, offer in sorted(offers.items())]
    told = json.dumps(session.told())
    words = (word for each in members for word in each)
    return sha256(session.transcript("ring", told, server.hex(), *words)).hexdigest()


class Seals:
    """Seals boxes for every other party of a session, and opens boxes from them.

    Args:
        keys: by party: (for what we send it, for what it sends us).
    """

    def __init__(self, name: str, keys: Mapping[str, tuple[AESGCM, AESGCM]]) -> None:
        self._name, self._keys = name, keys
        self._nonces = {other: count() for other in keys}

    def seal(self, to: str, content: bytes | memoryview, *context: _Context, about: bytes = b"") -> bytes:
        """A box that only `to` can open, OVERHEAD bytes longer than its content.

        Args:
            context: the box's purpose, round and place. The receiver must pass the same.
            about: hash of anything else that both must agree on, likewise.
        """
        nonce = next(self._nonces[to]).to_bytes(12)  # a key is for one direction of one session: never twice
        return nonce + self._keys[to][0].encrypt(nonce, content, _bound(context, about))

    def boxes(
        self, contents: Mapping[str, memoryview], purpose: str, *context: _Context, about: bytes = b""
    ) -> MaskedTensor:
        """Boxes of one size, uint8 (others, bytes), one for each entry of `contents`; other arguments as in `seal`."""
        boxes = [self.seal(to, content, purpose, *context, about=about) for to, content in contents.items()]
        return MaskedTensor(
            to_tensor(b"".join(boxes)).view(len(boxes), -1 if boxes else 0), f"{purpose} shares, sealed"
        )

    def open(self, sender: str, box: bytes | memoryview, *context: _Context, about: bytes = b"") -> bytes:
        """The content of a box. Raises SealError: it was altered, is for another party, or has another context."""
        other = ", or for other rows or another sharing" if about else ""
        try:
            return self._keys[sender][1].decrypt(box[:12], box[12:], _bound(context, about))
        except (InvalidTag, ValueError) as altered:
            what = " ".join(map(str, context))
            raise SealError(
                f"what {sender!r} sealed for {self._name!r} ({what}) cannot be opened: it was altered on the way"
                f"{other}",
                hint="check the path between the two, the server first",
            ) from altered


@lru_cache(maxsize=64)
def _bound(context: tuple[_Context, ...], about: bytes) -> bytes:
    """Authenticated data of a context, the same for all boxes of a round."""
    return json.dumps([*context, about.hex()] if about else context).encode()
