"""One member's operations on the lists that it receives: raises them, shuffles them, and can undo both.

The seed of its secret and shuffles is kept until the alignment is settled, so that it can be repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from torch import Tensor

from colonnade.common.alignment.checks import ListDigest
from colonnade.common.alignment.exponent import Exponent, MakeExponent
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_ring import SERVER_SEAT, PsiRing
from colonnade.common.alignment.scratch import NUMBER, Records, Scratch, Sorter, places_of, to_numbers
from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.group import ELEMENT
from colonnade.common.crypto.raising import Raising
from colonnade.common.crypto.sealing import Session
from colonnade.common.errors import InputError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.common.run.files import write_kept

Draw = Callable[[int], bytes]  # returns the given number of random bytes

SHUFFLED = "positions in a shuffled list"
_RAISED = "hashed keys, raised to a secret and shuffled"
_RANDOM = 8  # bytes of a shuffle's sort key


class PsiMember:
    """A member's part in one alignment. Its secret lives as long as this object, unless `exponent` returns a kept one.

    Lists and shuffles are on the disk, and are read by block or bucket: memory does not grow with the number of keys.

    Args:
        keys: its own; their folder is used for files.
        tag: domain of the hash, equal for all members.
        draw: source of randomness; the system's unless the configuration says `seeded`.
        exponent: makes one of the drawn secret, or returns a kept one; None makes one for this alignment alone.
        checked: True if lists are committed to: `prepare` is called for each of our own blocks before any is sent.

    Attributes:
        came: digest of the list received in the last stage, if lists are checked.
        sent: digest of the list to send in the next stage, likewise.
    """

    def __init__(
        self,
        ring: PsiRing,
        index: int,
        keys: RowKeys,
        tag: bytes,
        draw: Draw = os.urandom,
        *,
        exponent: MakeExponent | None = None,
        checked: bool = False,
    ) -> None:
        self.came = self.sent = b""
        self._checked = checked
        self._ring, self.seat, self._keys, self._tag, self._draw = ring, index, keys, tag, draw
        drawn = draw(ELEMENT)
        self.exponent = Exponent(drawn, Raising()) if exponent is None else exponent(drawn)
        self._width = self.exponent.width
        self._pairs = self.exponent.proves and index != SERVER_SEAT
        self._starts = (0, *accumulate(ring.sizes))
        self._orders = Scratch(NUMBER, keys.folder)
        self._coming: Sorter
        self._passing: Scratch
        self._digests: tuple[ListDigest, ListDigest]

    def give(self, stage: int, block: int) -> MaskedTensor:
        """A block of the list to send in a stage, uint8 (keys, 32). Our own is hashed and raised here.

        With proofs, each element of a party's list is followed by the one that it was raised from: uint8 (keys, 128).
        """
        if not stage and not block and not self._checked:
            self._shuffle_own()
        span = self._ring.span(self._ring.owner(self.seat, stage), block)
        if stage or self._checked:
            return MaskedTensor(torch.from_numpy(self._passing.read(span.start, span.stop - span.start)), _RAISED)
        return MaskedTensor(self.own_points(span), _RAISED)

    def prepare(self, block: int) -> None:
        """Hashes and raises a block of our own list, so that it can be committed to before any of it is sent.

        Raises InputError after the last block if an element repeats.
        """
        if not block:
            self._shuffle_own()
            self._passing, digest = Scratch(self._width, self._keys.folder), self._digest(self.seat)
            self._digests = (digest, digest)
        span = self._ring.span(self.seat, block)
        points = self.own_points(span).numpy()
        self._passing.write(span.start, points)
        self._digests[0].add(points)
        if block == self._ring.blocks() - 1:
            self.sent = self._digests[0].digest()

    def take(self, stage: int, block: int, points: Tensor) -> None:
        """Takes a block of a stage's list, uint8 (keys, 32); a party raises it. The last block shuffles the list."""
        owner = self._ring.owner(self.seat, stage + 1)
        if not block:
            self._coming = self._shuffler(owner, self._sent_width)
            if self._checked:
                self._digests = (self._digest(owner), self._digest(owner))
        raised = self.raise_points(owner, points).numpy()
        if self._checked:
            self._digests[0].add(points.numpy())
            self._digests[1].add(raised)
        if self._pairs:
            raised = np.hstack([raised, points.numpy()])
        self._coming.add(np.hstack([self._numbered(self._ring.span(owner, block)), raised]))
        if block == self._ring.blocks() - 1:
            if self._checked:
                self.came, self.sent = (digest.digest() for digest in self._digests)
            self._passing = Scratch(self._sent_width, self._keys.folder)  # the last list has been sent completely
            self._settle(owner, self._coming, self._passing)
            del self._coming

    def take_back(self, points: Tensor) -> Tensor:
        """Removes our secret from our own elements, uint8 (keys, 32), which the others have raised."""
        return self._as_points(self.exponent.take_back(to_bytes(points)))

    def undo(self, owner: int, positions: Tensor) -> Tensor:
        """Positions before our shuffle, of int64 (rows,) in a list that we sent; in our own list, rows of our table."""
        size = self._ring.sizes[owner]
        if len(positions) and not (int(positions.min()) >= 0 and int(positions.max()) < size):
            raise InputError(f"positions of 0 to {size - 1}")
        return to_numbers(self._orders.pick(self._starts[owner] + positions.numpy()))

    def next_positions(self, owner: int, places: Tensor) -> MaskedTensor:
        """The part of `undo`'s result to send on: empty for our own list, whose positions are our rows."""
        return MaskedTensor(places[:0] if owner == self.seat else places, SHUFFLED)

    @property
    def folder(self) -> Path | None:
        return self._keys.folder

    @property
    def _sent_width(self) -> int:
        return self._width * (2 if self._pairs else 1)

    def own_points(self, span: slice) -> Tensor:
        rows = self._orders.read(self._starts[self.seat] + span.start, span.stop - span.start)
        keys = [self._keys.values[row] for row in to_numbers(rows).tolist()]
        return self._as_points(self.exponent.keys(keys, self._tag))

    def _digest(self, owner: int) -> ListDigest:
        return ListDigest(self._ring.sizes[owner], self._width, self._keys.folder)

    def raise_points(self, owner: int, points: Tensor) -> Tensor:
        elements = to_bytes(points)
        if self._ring.raises(self.seat, owner):
            return self._as_points(self.exponent.elements(elements))
        self.exponent.check(elements)  # else the next member would refuse ours
        return points

    def _as_points(self, elements: bytes) -> Tensor:
        return to_tensor(elements).view(-1, self._width)

    def _shuffle_own(self) -> None:
        sorter = self._shuffler(self.seat)
        for span in self._ring.spans_of(len(self._keys)):
            sorter.add(self._numbered(span))
        self._settle(self.seat, sorter)

    def _shuffler(self, owner: int, width: int = 0) -> Sorter:
        """A sorter of records (number, position, element) by random 64-bit numbers: a random order."""
        return Sorter(self._ring.sizes[owner], _RANDOM, _RANDOM + NUMBER + width, self._keys.folder)

    def _numbered(self, span: slice) -> Records:
        numbers = to_tensor(self._draw(_RANDOM * (span.stop - span.start))).numpy().reshape(-1, _RANDOM)
        return np.hstack([numbers, places_of(span)])

    def _settle(self, owner: int, sorter: Sorter, elements: Scratch | None = None) -> None:
        at = 0
        for records in sorter.sorted():
            self._orders.write(self._starts[owner] + at, records[:, _RANDOM : _RANDOM + NUMBER])
            if elements is not None:
                elements.write(at, records[:, _RANDOM + NUMBER :])
            at += len(records)


def tag_of(session: Session) -> bytes:
    """Domain of the key hash: the same for all members in all runs of a federation, so that lists can be repeated."""
    agreed = sorted(item for item in session.config.items() if item[0].split(".")[0] in ("align", "keys"))
    content = json.dumps([session.federation, agreed, session.config.get("parties", "")]).encode()
    return b"colonnade alignment curve25519_XMD:SHA-512_ELL2_NU_ " + hashlib.sha256(content).digest()


def about(tag: bytes, ring: PsiRing, keys: RowKeys, nonces: Sequence[bytes] = ()) -> bytes:
    """Digest of a member's inputs to an alignment: any change gives other secrets.

    Args:
        nonces: all members', if an attempt may not be repeated with the same secrets.
    """
    return b"".join([tag, keys.digest, *(size.to_bytes(8) for size in ring.sizes), *nonces])


def draw_for(federation: FederationConfig, member: str, own: Draw = os.urandom) -> Draw:
    """Source of a member's secret and shuffles: its own randomness, or for tests the federation's seed."""
    if not federation.keys.seeded:
        return own
    return random.Random(f"alignment {federation.seed} {member}").randbytes  # noqa: S311  # as configured


NAME = "alignment.seed"

_BYTES = 32
_NONCE = bytes(16)  # every key is used for one stream


class Seed:
    """Randomness for an alignment, repeatable after a restart; other sizes, keys or another run give another stream.

    Args:
        path: its file, readable by its owner alone; None keeps it in memory.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._held = path, b""

    def draw(self, about: bytes) -> Draw:
        """Returns a source of random bytes, the same for the same `about`, until the seed is forgotten."""
        key = hashlib.blake2b(about, key=self._get(), digest_size=_BYTES).digest()
        stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
        return lambda count: stream.update(bytes(count))

    def forget(self) -> None:
        """Removes the seed once the alignment is settled: the next alignment draws another."""
        self._held = b""
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _get(self) -> bytes:
        if not self._held and self._path is not None and self._path.is_file():
            self._held = self._path.read_bytes()
        if len(self._held) != _BYTES:
            drawn = os.urandom(_BYTES)
            if self._path is not None:
                write_kept(self._path, drawn, 0o600, in_new=True)
            self._held = drawn
        return self._held
