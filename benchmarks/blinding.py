"""Blinding among 100 parties: the 99 masks of one party's embedding, added up, against their bare keystream.

Both are measured in turn on one thread, in processor time, which other processes lengthen least, and medians are
compared. The keystream is 99 ChaCha20 streams under keys of their own, one after the other into the same buffer.
"""

from __future__ import annotations

import os
from itertools import count

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from benchmarks.report import Figure
from benchmarks.times import times
from common.crypto.blinding import Blinder
from common.numerics.ring import Ring

PARTIES, ROWS, WIDTH = 100, 1024, 60
BOUND = 8.0


def main() -> list[Figure]:
    """Masks modulo 2^32 and 2^64."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return [_masks(bits) for bits in (32, 64)]


def _masks(bits: int) -> Figure:
    ours, *others = roster = [f"party{number}" for number in range(PARTIES)]
    keys = {name: os.urandom(32) for name in others}
    blinder = Blinder(ours, roster, keys, least=PARTIES)
    words = Ring(BOUND, PARTIES, bits).encode(torch.randn(ROWS, WIDTH))
    zeros = bytes(words.nbytes)
    stream, rounds = bytearray(words.nbytes), count(1)

    def keystream() -> None:
        for key in keys.values():
            Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update_into(zeros, stream)

    floor, masks = times(keystream, lambda: blinder.blind(words, next(rounds), 0, roster))
    return Figure(
        f"{PARTIES - 1} masks of {ROWS} x {WIDTH} modulo 2^{bits}", masks, 2.0, "ms", floor, "their keystream"
    )
