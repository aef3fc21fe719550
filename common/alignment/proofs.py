"""Lists with proofs: how they are raised, sealed for the next member, and verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from colonnade.common.alignment.checks import ListDigest, PledgeTerms
from colonnade.common.alignment.exponent import Exponent
from colonnade.common.alignment.psi_ring import SERVER_SEAT, PsiRing
from colonnade.common.crypto import proven
from colonnade.common.crypto.proven import POINT, PROOF, Multiplier
from colonnade.common.crypto.sealing import Seals
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.raw import to_bytes, to_tensor

_SEAL_KEY = 32
KEYS = POINT + _SEAL_KEY  # bytes that a party pledges with its own list: x G of its exponent x, and a key for sealing


class ProvenExponent(Exponent):
    """An exponent whose use can be proved, in a group of its own (common/crypto/proven.py)."""

    width = POINT
    proves = True

    def __init__(self, scalar: bytes) -> None:
        self.multiplier = Multiplier(scalar)

    def keys(self, keys: Sequence[bytes], tag: bytes) -> bytes:
        return self.multiplier.multiply(proven.hash_to_points(keys, tag))

    def elements(self, elements: bytes) -> bytes:
        return self.multiplier.multiply(proven.points_of(elements))

    def take_back(self, elements: bytes) -> bytes:
        return self.multiplier.take_back(elements)

    def check(self, elements: bytes) -> None:
        proven.points_of(elements)


@dataclass
class ProofTerms:
    """Context of the proofs of an alignment, once all members have pledged their own lists.

    Args:
        digests: all members' lists by stage, the server's first; grows with every stage.
        keys: KEYS bytes of every party; empty for the server.
    """

    terms: PledgeTerms
    ring: PsiRing
    digests: Sequence[tuple[bytes, ...]]
    keys: Sequence[bytes]
    folder: Path | None = None
    _before: dict[int, ListDigest] = field(default_factory=dict, init=False)

    def context(self, seat: int, stage: int, block: int) -> bytes:
        """What the proof of a member's block is bound to."""
        told = [[one.hex() for one in self.digests[0]], [one.hex() for one in self.keys], seat, stage, block]
        return hashlib.sha256(self.terms.content("proof", stage, b"", json.dumps(told).encode())).digest()

    def proven(self, seat: int, stage: int) -> bool:
        """True if a member sends pairs of elements and proofs in a stage: parties do, of lists that they pass on."""
        return bool(stage) and seat != SERVER_SEAT

    def make(self, exponent: ProvenExponent, seat: int, stage: int, block: int, rows: bytes) -> bytes:
        """The content to send for a block; in a proven list each element is followed by the one before raising."""
        if not rows or not self.proven(seat, stage):
            return rows
        after, before = _halves(rows)
        return rows + exponent.multiplier.prove(before, after, self.context(seat, stage, block))

    def read(self, name: str, seat: int, stage: int, block: int, content: bytes) -> bytes:
        """The elements of a block that a member has sent, after verification.

        Raises ContractError if the length is wrong, the elements were not all raised to the member's exponent, or they
        are not those that the member before it passed on. Names the member.
        """
        owner = self.ring.owner(seat, stage)
        rows, proves = self.ring.length(owner, block), self.proven(seat, stage)
        expected = rows * POINT * (2 if proves else 1) + (PROOF if proves and rows else 0)
        if len(content) != expected:
            raise ContractError(name, "Proved", "box", f"{expected} bytes", str(len(content)))
        if not proves:
            return content
        try:
            return self._verified(seat, stage, block, content)
        except InputError as wrong:
            raise ContractError(name, "Proved", "box", "elements raised to its one exponent", str(wrong)) from None

    def _verified(self, seat: int, stage: int, block: int, content: bytes) -> bytes:
        owner, after = self.ring.owner(seat, stage), b""
        if not block:
            self._before[seat] = ListDigest(self.ring.sizes[owner], POINT, self.folder)
        if content:
            after, before = _halves(content[:-PROOF])
            public, context = self.keys[seat][:POINT], self.context(seat, stage, block)
            proven.verify(public, before, after, context, content[-PROOF:])
            self._before[seat].add(to_tensor(before).numpy().reshape(-1, POINT))
        last = block == self.ring.blocks() - 1
        if last and self._before[seat].digest() != self.digests[stage - 1][seat - 1]:
            raise InputError("other elements than those that it was sent")
        return after


def _halves(rows: bytes) -> tuple[bytes, bytes]:
    pairs = to_tensor(rows).view(-1, 2 * POINT)
    return to_bytes(pairs[:, :POINT]), to_bytes(pairs[:, POINT:])


class SealKey:
    """A party's key of one alignment, which seals the lists that it sends and receives.

    `public`, 32 bytes, is pledged with the party's own list.
    """

    def __init__(self) -> None:
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def seals(self, name: str, keys: dict[str, bytes], terms: PledgeTerms) -> Seals:
        """Seals with the other parties; `keys` are KEYS bytes of each, signed by it."""
        found = {}
        for other, pledged in keys.items():
            try:
                shared = self._private.exchange(X25519PublicKey.from_public_bytes(pledged[POINT:]))
            except ValueError:
                raise ContractError(other, "Pledge", "keys", "a key for sealing", "another") from None
            both = sorted([pledged[POINT:].hex(), self.public.hex()])

            def derive(source: str, to: str, shared: bytes = shared, both: list[str] = both) -> AESGCM:
                info = terms.content(source, 0, b"", json.dumps(["sealed list", to, *both]).encode())
                return AESGCM(HKDF(hashes.SHA256(), 32, salt=None, info=info).derive(shared))

            found[other] = (derive(name, other), derive(other, name))
        return Seals(name, found)
