"""What one member does with the lists that pass through its hands: raises them, shuffles them, and can undo that."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from common.alignment.keys import Keys
from common.alignment.ring import Ring
from common.crypto.group import ELEMENT, Secret, check_elements, hash_to_curve
from common.crypto.sealing import Session
from common.errors import InputError
from common.raw import to_bytes, to_tensor

if TYPE_CHECKING:
    from common.config import FederationConfig

Draw = Callable[[int], bytes]
"""Random bytes, as many as asked for."""


class Hand:
    """A member's part in one alignment. Its secret is drawn here, and gone with it.

    Memory: 64 bytes a key of the list that is being raised (as it was passed on and as it comes), and 8 a key of every
    list for the shuffles.

    Args:
        ring: the sizes of all lists.
        seat: the member's.
        keys: its own.
        tag: what keys are hashed for: equal for all members, another in every session.
        draw: randomness; the system's own unless the configuration says `seeded`.
    """

    def __init__(self, ring: Ring, seat: int, keys: Keys, tag: bytes, draw: Draw = os.urandom) -> None:
        self._ring, self._seat, self._keys, self._tag, self._draw = ring, seat, keys, tag, draw
        self._secret = Secret(draw(ELEMENT))
        self._inverse = self._secret.inverse()
        self._orders = {seat: self._shuffle(len(keys))}
        self._passing = self._coming = torch.empty(0, ELEMENT, dtype=torch.uint8)

    def give(self, stage: int, block: int) -> Tensor:
        """A block of the list that is passed on in a stage, uint8 (keys, 32). Our own is hashed and raised here."""
        span = self._ring.span(self._ring.owner(self._seat, stage), block)
        if stage:
            return self._passing[span]
        keys = [self._keys.values[row] for row in self._orders[self._seat][span].tolist()]
        return _as_points(self._secret.raise_all(hash_to_curve(keys, self._tag)))

    def take(self, stage: int, block: int, points: Tensor) -> None:
        """A block of the list that comes in a stage, which a party raises; with the last one the list is shuffled.

        Args:
            points: uint8 (keys, 32), as many as the ring says.

        Raises:
            InputError: one of them is no element.
        """
        owner = self._ring.owner(self._seat, stage + 1)
        if not block:
            self._coming = torch.empty(self._ring.sizes[owner], ELEMENT, dtype=torch.uint8)
        self._coming[self._ring.span(owner, block)] = self._raised(owner, points)
        if block == self._ring.blocks() - 1:
            self._passing = torch.empty(0, ELEMENT, dtype=torch.uint8)  # all of it has gone
            self._orders[owner] = self._shuffle(len(self._coming))
            self._passing = self._coming[self._orders[owner]]

    def take_back(self, points: Tensor) -> Tensor:
        """Elements of our own list as they come home, uint8 (keys, 32): without our secret, raised by the others alone.

        Raises:
            InputError: one of them is no element.
        """
        return _as_points(self._inverse.raise_all(to_bytes(points)))

    def undo(self, owner: int, positions: Tensor) -> Tensor:
        """Where rows of a list that we have passed on stood before our shuffle.

        Args:
            owner: whose list it is; in our own, the places are rows of our table.
            positions: int64 (rows,).

        Raises:
            InputError: there is no such position.
        """
        size = self._ring.sizes[owner]
        if len(positions) and not (int(positions.min()) >= 0 and int(positions.max()) < size):
            raise InputError(f"positions of 0 to {size - 1}")
        return self._orders[owner][positions]

    def _raised(self, owner: int, points: Tensor) -> Tensor:
        elements = to_bytes(points)
        if self._ring.raises(self._seat, owner):
            return _as_points(self._secret.raise_all(elements))
        check_elements(elements)  # the next member would hold us to account
        return points

    def _shuffle(self, rows: int) -> Tensor:
        """A random order, int64 (rows,): that of random numbers of 64 bits."""
        numbers = np.frombuffer(self._draw(8 * rows), dtype=np.uint64)
        return torch.from_numpy(np.argsort(numbers))


def tag_of(session: Session) -> bytes:
    """What keys are hashed for: the same for all members, another in every session of every run."""
    return b"colonnade alignment curve25519_XMD:SHA-512_ELL2_NU_ " + hashlib.sha256(session.transcript("keys")).digest()


def draw_for(federation: FederationConfig, member: str) -> Draw:
    """Where a member's secret and its shuffles come from: the system, or for tests the federation's seed."""
    if not federation.keys.seeded:
        return os.urandom
    return random.Random(f"alignment {federation.seed} {member}").randbytes  # noqa: S311  # the configuration asked


def _as_points(elements: bytes) -> Tensor:
    return to_tensor(elements).view(-1, ELEMENT)
