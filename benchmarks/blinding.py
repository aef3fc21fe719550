"""Cost of blinding: masks against their bare keystream, and a round against the same in the clear.

Among 100 parties the 99 masks of one party's embedding are added up. Masks and keystream are measured in turn on one
thread, in processor time, which other load affects least; medians are compared. The keystream is 99 ChaCha20 streams
with separate keys, one after the other into the same buffer.

The round is VFedMH's among four on MNIST, batches of 128 and embeddings of 64, as processes over mutual TLS.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20

from benchmarks.report import Figure, in_turn, median, times
from benchmarks.runs import rounds_in_turn, run
from benchmarks.scaling import Setting, write
from benchmarks.shares import over_the_wire
from colonnade.common.aggregation.fixed_point import Ring
from colonnade.common.aggregation.masks import Blinder
from colonnade.common.aggregation.messages import SealedShares
from colonnade.common.aggregation.recovery import SharedKeys, Sharing
from colonnade.common.wire.codec import Codec

PARTIES, ROWS, WIDTH = 100, 1024, 60
_SHORT = ("federation.rounds=150", "federation.epochs=0", "federation.evaluate.every=1000", "federation.rows.test=256")
BOUND = 8.0


def main() -> list[Figure]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return [*(_masks(bits) for bits in (32, 64)), _blinded_round()]


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


def _blinded_round() -> Figure:
    clear, blind = rounds_in_turn(
        *(("vfedmh/mnist.yaml", f"federation.protocol.aggregate={how}", *_SHORT) for how in ("clear", "blinded"))
    )
    return Figure("VFedMH round among four, 128 x 64, blinded", blind, 1.15, "ms", clear, "the same in the clear")


SIZES = (5, 14)
ROUNDS, TIMES = 100, 3


@dataclass(frozen=True)
class Blinded(Setting):
    recovery: str = "none"

    def tree(self, rounds: int) -> dict[str, Any]:
        made = super().tree(rounds)
        made["federation"]["protocol"]["aggregate"] = "blinded"
        if self.recovery != "none":
            made["federation"]["blinding"] = {"recovery": self.recovery}
            made["federation"]["quorum"] = {"need": max(3, 2 * self.parties // 3 + 1), "grace": 30}
        return made


def recovery() -> list[Figure]:
    """Cost of recovery: a blinded round with double masks among 5 and 14 parties, and a session's shares among 14.

    A round is `split_avg`'s on columns of noise (scaling.py), batches of 256 and embeddings of 64, as processes over
    mutual TLS: processor time of all members between two rounds of one run. It is compared with the same with single
    masks and `quorum: wait`, which confirms no sets. The two runs of each size alternate.

    A session begins with the shares of 32 rounds. The work of one party and the server for them is measured on one
    thread, in processor time; in a federation the parties work at once. The whole start is measured as well: seconds
    from the launch of all members to the end of the first round, against the same with single masks.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        rounds = [_round(parties, Path(scratch)) for parties in SIZES]
        return [*rounds, _session(SIZES[-1]), _start(SIZES[-1], Path(scratch))]


def _in_turn(parties: int, measure: Callable[[Blinded], float]) -> tuple[float, float]:
    """Medians with recovery and with single masks, of runs in turn."""
    taken: dict[str, list[float]] = {"colluding": [], "none": []}
    for recovery in tuple(taken) * TIMES:
        taken[recovery].append(measure(Blinded("split_avg", parties, recovery=recovery)))
    ours, floor = map(median, taken.values())
    return ours, floor


def _round(parties: int, folder: Path) -> Figure:
    ours, floor = _in_turn(parties, lambda setting: 1e3 * over_the_wire(setting, ROUNDS, folder))
    return Figure(f"blinded round among {parties}, with recovery", ours, 1.6, "ms", floor, "with single masks")


def _session(parties: int) -> Figure:
    names = [f"party{number}" for number in range(parties)]
    codec, sharing = Codec({"SealedShares": SealedShares}), Sharing(2 * parties // 3 + 1, parties)
    keys = {name: os.urandom(32) for name in names[1:]}
    dealing = iter([SharedKeys(names[0], names, keys, sharing, least=3) for _ in range(TIMES)])

    def session() -> None:
        sealed = b"".join(codec.encode(next(dealing).deal(1)))
        for _ in names:
            codec.decode("SealedShares", memoryview(sealed))

    seconds = median(in_turn(session, clock=time.thread_time, repeats=TIMES)[0])
    return Figure(f"a session's shares among {parties}, a party and the server", seconds, 0.5, "s")


def _start(parties: int, folder: Path) -> Figure:
    def seconds(setting: Blinded) -> float:
        return float(run(setting.tree(3), base=folder).summary["seconds_to_first_round"])

    ours, floor = _in_turn(parties, seconds)
    return Figure(f"launch to first round among {parties}: longer with recovery", ours - floor, 0.5, "s")
