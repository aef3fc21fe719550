"""What one party says to another through the server, which must not read it.

At the beginning of a session every party draws a fresh X25519 key and signs its public part, and
which session it is for, with the key of its certificate: the server, who passes the offers on,
cannot put a key of its own in between. Every ordered pair of parties derives a key of its own
(HKDF over both public keys and all that names the session), and every sealed box (AES-256-GCM)
is bound to what it is: its purpose, round, and place. Keys live in memory, for one session.

Every unordered pair has one more key, for masks, that neither seals nor opens anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from common.crypto.identity import Identity
from common.crypto.signatures import Signer, Verifier
from common.errors import PeerError

KEY_BYTES = 32
OVERHEAD = 12 + 16  # bytes that a box is longer than its content: a nonce and a tag

_Context = str | int


class SealError(PeerError):
    """A box was altered on the way, or is not what it was announced to be."""


@dataclass(frozen=True)
class Session:
    """What an agreement is for; everything derived from it is bound to all of these.

    Args:
        federation: its id.
        run: the run's own number.
        number: of the session.
        config: dotted key of the agreed section -> hash of its value.
    """

    federation: str = ""
    run: str = ""
    number: int = 0
    config: Mapping[str, str] = field(default_factory=dict)

    def transcript(self, *more: _Context) -> bytes:
        """The session and more, without ambiguity."""
        return json.dumps([self.federation, self.run, self.number, sorted(self.config.items()), *more]).encode()


@dataclass(frozen=True)
class Offer:
    """A party's public key for a session, signed.

    Args:
        key: X25519, 32 bytes.
        certificate: the party's, PEM; empty where nobody has one (loopback without TLS).
        signature: ECDSA over the session, the party's name and the key; empty without a certificate.
    """

    key: bytes
    certificate: bytes = b""
    signature: bytes = b""


class Agreement:
    """One party's side of the key agreement of a session.

    Args:
        name: the party's.
        session: that the keys are for.
        identity: what the offer is signed with; None signs nothing, and believes everybody.
    """

    def __init__(self, name: str, session: Session, identity: Identity | None) -> None:
        self._name, self._session, self._signer = name, session, Signer(identity)
        self._private = x25519.X25519PrivateKey.generate()
        self._public = self._private.public_key().public_bytes_raw()

    def offer(self) -> Offer:
        """What the others are to be told."""
        signature = self._signer.sign(self._content(self._name, self._public))
        return Offer(self._public, self._signer.certificate, signature)

    def finish(self, offers: Mapping[str, Offer], pins: Mapping[str, str]) -> Seals:
        """The keys that are shared with each of the others.

        Args:
            offers: everybody's, by party.
            pins: the fingerprint of every party's certificate, as the roster has it.

        Raises:
            ForgedError: an offer is not its party's.
            SealError: an offer is no key, or ours came back as another.
            ConfigError: we have a certificate, and the roster pins none for somebody.
        """
        keys = {other: self._pair(other, key, secret) for other, key, secret in self._exchange(offers, pins)}
        return Seals(self._name, keys)

    def mask_keys(self, offers: Mapping[str, Offer], pins: Mapping[str, str]) -> dict[str, bytes]:
        """A key for masks with each of the others, 32 bytes, the same at both ends (`common/crypto/blinding.py`).

        Args and errors as those of `finish`, which may be called too: the keys have nothing in common.
        """
        ours = (self._name, self._public)
        return {
            other: self._derive(secret, "masks", *sorted([ours, (other, key)]))
            for other, key, secret in self._exchange(offers, pins)
        }

    def _exchange(self, offers: Mapping[str, Offer], pins: Mapping[str, str]) -> Iterator[tuple[str, bytes, bytes]]:
        """Every other party, its key, and what X25519 makes of that and ours."""
        for other, offer in offers.items():
            if other == self._name:
                if offer.key != self._public:
                    raise SealError(f"the key of {other!r} came back as another", hint="the server is not honest")
                continue
            if self._signer.certificate:
                verifier = Verifier(other, offer.certificate, pins.get(other, ""))
                verifier.check(f"the key of {other!r}", self._content(other, offer.key), offer.signature)
            yield other, offer.key, self._secret(other, offer.key)

    def _content(self, name: str, key: bytes) -> bytes:
        return self._session.transcript("offer", name, key.hex())

    def _secret(self, other: str, key: bytes) -> bytes:
        try:
            return self._private.exchange(x25519.X25519PublicKey.from_public_bytes(key))
        except ValueError as bad:  # of another length, or of small order: the secret would be zero
            raise SealError(f"{other!r} offers no usable key: {bad}", hint="its software is broken, or worse") from bad

    def _pair(self, other: str, key: bytes, secret: bytes) -> tuple[AESGCM, AESGCM]:
        ours, theirs = (self._name, self._public), (other, key)
        outward = self._derive(secret, "sealed", ours, theirs)
        inward = self._derive(secret, "sealed", theirs, ours)
        return AESGCM(outward), AESGCM(inward)

    def _derive(self, secret: bytes, use: str, one: tuple[str, bytes], two: tuple[str, bytes]) -> bytes:
        """A key for one use between two, in this order; each is a name and a public key."""
        info = self._session.transcript(use, one[0], one[1].hex(), two[0], two[1].hex())
        return HKDF(hashes.SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


class Seals:
    """Seals for, and opens from, every other party of a session.

    Args:
        name: of the party that has them.
        keys: by party: (for what we send it, for what it sends us).
    """

    def __init__(self, name: str, keys: Mapping[str, tuple[AESGCM, AESGCM]]) -> None:
        self._name, self._keys = name, keys
        self._nonces = {other: count() for other in keys}

    def seal(self, to: str, content: bytes | memoryview, *context: _Context) -> bytes:
        """A box that only `to` can open, OVERHEAD bytes longer than its content.

        Args:
            context: what the box is: its purpose, round and place. The receiver must name the same.
        """
        nonce = next(self._nonces[to]).to_bytes(12)  # a key is for one direction of one session: never twice
        return nonce + self._keys[to][0].encrypt(nonce, content, _bound(context))

    def open(self, sender: str, box: bytes | memoryview, *context: _Context) -> bytes:
        """What a box holds.

        Raises:
            SealError: it was altered, is another's, or of another context; names the sender and the context.
        """
        try:
            return self._keys[sender][1].decrypt(box[:12], box[12:], _bound(context))
        except (InvalidTag, ValueError) as altered:
            what = " ".join(map(str, context))
            raise SealError(
                f"what {sender!r} sealed for {self._name!r} ({what}) cannot be opened: it was altered on the way",
                hint="look at what lies between the two, the server first",
            ) from altered


@lru_cache(maxsize=64)
def _bound(context: tuple[_Context, ...]) -> bytes:
    """The same for all the boxes of a round."""
    return json.dumps(context).encode()
