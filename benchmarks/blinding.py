"""Cost of blinding: masks against their bare keystream, and a round against the same in the clear.

Among 100 parties the 99 masks of one party's embedding are added up. Masks and keystream are measured in turn on one
thread, in processor time, which other load affects least; medians are compared. The keystream is 99 ChaCha20 streams
with separate keys, one after the other into the same buffer.

The round is VFedMH's among four on MNIST, batches of 128 and embeddings of 64, as processes over mutual TLS.
"""

from __future__ import annotations

import os
import statistics
from itertools import count

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from benchmarks.report import Figure
from benchmarks.runs import run
from benchmarks.times import times
from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.ring import Ring

PARTIES, ROWS, WIDTH = 100, 1024, 60
_SHORT = ("federation.rounds=150", "federation.epochs=0", "federation.evaluate.every=1000", "federation.rows.test=256")
BOUND = 8.0


def main() -> list[Figure]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return [*(_masks(bits) for bits in (32, 64)), _round()]


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

    floor, masks = times(keystream, lambda: blinder.blind(words, next(rounds), 0, roster, bytes(32)))
    return Figure(
        f"{PARTIES - 1} masks of {ROWS} x {WIDTH} modulo 2^{bits}", masks, 2.0, "ms", floor, "their keystream"
    )


def _round() -> Figure:
    """The median over all rounds of two runs of each kind, in turn, without the first ten rounds of each run."""
    seconds: dict[str, list[float]] = {"clear": [], "blinded": []}
    for how in ("clear", "blinded") * 2:
        sets = (f"federation.protocol.aggregate={how}", *_SHORT)
        seconds[how] += [event["seconds"] for event in run("vfedmh/mnist.yaml", *sets).rounds()[10:]]
    clear, blind = (1e3 * statistics.median(seconds[how]) for how in ("clear", "blinded"))
    return Figure("VFedMH round among four, 128 x 64, blinded", blind, 1.15, "ms", clear, "the same in the clear")
