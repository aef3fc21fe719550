"""A test that a party's hint is valid, before the server returns anything to the party.

What the server returns (`Sender.opened`) is y - H s under a noise of deviation F. A party that chose H' = H + D would
read D s, and with it s and all numbers. So there are PROBES vectors of zeros first, once in a session:

    1   server   c of zeros, from a seed that only it knows                  -> every party
    2   party    a hash of y = M c + u c_d + f                                -> server
    3   server   the seed                                                     -> every party
    4   party    makes c of the seed itself; if they are the same, y          -> server server   the hash is y's, and |y
    - H s| is below a bound, in full and not modulo Δ

**Towards the server**: it has opened the vectors before it sees y, so that y is a sum of zeros. **Towards the party**:
it is bound to y before it knows s. A hint that deviates passes only if D s is in one interval of twice the bound for
all fresh s, and a coordinate of D that is larger than that is 0 in D s with a third: one passes with a probability of
at most 3^-8, and c of them, for as many entries of s, with 3^-8c. What passes has D s below the bound, 11 PROBED
deviations of the honest error, and under F = FLOOD of these: a sum tells at most (11 PROBED / FLOOD)^2 / 2 nats of it,
1.4e-5.

What is left is an assumption: that a party whose y is close to H s without knowing s knows short M' and u' with H close
to M' A + u' a_d (a knowledge assumption; the short vectors are what it would have sent honestly, of other rows).

f is PROBED times what it hides, less than FLOOD, as there are PROBES answers only: `SumSize.residual` for the hint, and
8 / 2 PROBED^2 nats a bin of the columns at most. y needs no salt: f alone is beyond guessing.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from colonnade.common.encryption.linear import Answer, Hint, Sender
from colonnade.common.encryption.messages import BLOCK
from colonnade.common.encryption.parameters import DEGREE, PROBES, SumSize
from colonnade.common.encryption.ring import Public, Words
from colonnade.common.errors import InputError


class Probe:
    """Vectors of zeros, as they follow from a seed of 32 bytes: at the server, and later at every party."""

    def __init__(self, size: SumSize, public: Public, seed: bytes) -> None:
        stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor()
        self._size, self._sender = size, Sender(size, public, lambda count: stream.update(bytes(count)))
        self._keys = self._sender.keys(PROBES)

    @property
    def dummy(self) -> Words:
        """c_d, (N, PROBES)."""
        return self._keys.dummy

    def blocks(self) -> Iterator[Words]:
        """c of every block of rows, (rows, PROBES). Called once."""
        for first in range(0, self._size.rows, BLOCK):
            zeros = np.zeros((min(BLOCK, self._size.rows - first), PROBES), np.int64)
            yield self._sender.encrypt(self._keys, zeros, first // DEGREE)

    def refuse(self, hint: Hint, y: Words) -> None:
        """Raises InputError if y, (bins, PROBES), does not fit the party's hint."""
        error = (y - hint.times(self._keys)).view(np.int64)
        most = self._size.largest_probe_error
        if ((error > most) | (error < -most)).any():
            raise InputError("other sums: the hint is of no table of bins")


class ProbeAnswer:
    """The party's answer to a probe whose c it has received.

    Args:
        received: hash of c_d and of all c.
    """

    def __init__(self, size: SumSize, public: Public, answer: Answer, received: bytes) -> None:
        self._size, self._public, self._received = size, public, received
        self._y = answer.with_noise(size.probe_noise)

    @property
    def digest(self) -> bytes:
        return digest(self._y)

    def open(self, seed: bytes) -> Words:
        """y, (bins, PROBES). Raises InputError if the seed gives other vectors than were received."""
        probe = Probe(self._size, self._public, seed)
        if digest(probe.dummy, *probe.blocks()) != self._received:
            raise InputError("vectors of a probe that are not zeros of its seed")
        return self._y


def digest(*parts: Words) -> bytes:
    """SHA-256 of words, part after part."""
    found = sha256()
    for part in parts:
        found.update(np.ascontiguousarray(part).astype("<u8", copy=False).tobytes())
    return found.digest()
