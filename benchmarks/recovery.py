"""Cost of recovery: a blinded round with double masks among 5 and 14 parties, and a session's shares among 14.

A round is `split_avg`'s on columns of noise (synthetic.py), batches of 256 and embeddings of 64, as processes over
mutual TLS: processor time of all members between two rounds of one run. It is compared with the same with single masks
and `quorum: wait`, which confirms no sets. The two runs of each size alternate.

A session begins with the shares of 32 rounds. The work of one party and the server for them is measured on one thread,
in processor time; in a federation the parties work at once. The whole start is measured as well: seconds from the
launch of all members to the end of the first round, against the same with single masks.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.report import Figure, median
from benchmarks.runs import run
from benchmarks.shares import over_the_wire
from benchmarks.synthetic import Setting, write
from colonnade.common.aggregation.messages import SealedShares
from colonnade.common.aggregation.recovery import SharedKeys
from colonnade.common.aggregation.shamir import Sharing
from colonnade.common.wire.codec import Codec

SIZES = (5, 14)
ROUNDS, TIMES = 100, 3


@dataclass(frozen=True)
class Blinded(Setting):
    """A federation of `split_avg` with blinded sums."""

    recovery: str = "none"

    def tree(self, rounds: int) -> dict[str, Any]:
        made = super().tree(rounds)
        made["federation"]["protocol"]["aggregate"] = "blinded"
        if self.recovery != "none":
            made["federation"]["blinding"] = {"recovery": self.recovery}
            made["federation"]["quorum"] = {"need": max(3, 2 * self.parties // 3 + 1), "grace": 30}
        return made


def main() -> list[Figure]:
    """Rounds with single and double masks, and the shares at the beginning of a session."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        rounds = [_round(parties, Path(scratch)) for parties in SIZES]
        return [*rounds, _session(SIZES[-1]), _start(SIZES[-1], Path(scratch))]


def _round(parties: int, folder: Path) -> Figure:
    taken: dict[str, list[float]] = {"none": [], "colluding": []}
    for recovery in tuple(taken) * TIMES:
        setting = Blinded("split_avg", parties, recovery=recovery)
        taken[recovery].append(1e3 * over_the_wire(setting, ROUNDS, folder))
    ours, floor = median(taken["colluding"]), median(taken["none"])
    return Figure(f"blinded round among {parties}, with recovery", ours, 1.6, "ms", floor, "with single masks")


def _session(parties: int) -> Figure:
    names = [f"party{number}" for number in range(parties)]
    codec, threshold = Codec({"SealedShares": SealedShares}), 2 * parties // 3 + 1
    seconds = []
    for _ in range(TIMES):
        keys = SharedKeys(
            names[0], names, {name: os.urandom(32) for name in names[1:]}, Sharing(threshold, parties), least=3
        )
        begin = time.thread_time()
        sealed = b"".join(codec.encode(keys.deal(1)))
        for _ in names:
            codec.decode("SealedShares", memoryview(sealed))
        seconds.append(time.thread_time() - begin)
    return Figure(f"a session's shares among {parties}, a party and the server", median(seconds), 0.5, "s")


def _start(parties: int, folder: Path) -> Figure:
    taken: dict[str, list[float]] = {"none": [], "colluding": []}
    for recovery in tuple(taken) * TIMES:
        file = folder / "start.yaml"
        file.write_text(yaml.safe_dump(Blinded("split_avg", parties, recovery=recovery).tree(3)), encoding="utf-8")
        taken[recovery].append(run(str(file)).summary["seconds_to_first_round"])
    longer = median(taken["colluding"]) - median(taken["none"])
    return Figure(f"launch to first round among {parties}: longer with recovery", longer, 0.5, "s")
