"""Cost of coding without stragglers: a FedVS round among 28 parties against the same in plaintext.

Fashion-MNIST, K = 6, T = 1, batches of 256 (experiments/fedvs/fashion.yaml) and split_avg with the same networks, as
processes over mutual TLS. Median rounds, without the first ten.
"""

from __future__ import annotations

import statistics

from benchmarks.report import Figure
from benchmarks.runs import run

_ROUNDS = 60
_SETS = (f"federation.rounds={_ROUNDS}", "federation.epochs=0", "federation.evaluate.every=1000")
_FEW = ("federation.rows.validation=0", "federation.rows.test=256")


def main() -> list[Figure]:
    seconds = {}
    for name in ("split_avg", "fedvs"):
        rounds = run(f"{name}/fashion.yaml", *_SETS, *_FEW).rounds()
        seconds[name] = statistics.median(event["seconds"] for event in rounds[10:])
    what = "FedVS round, 28 parties, K = 6, T = 1, batch 256"
    return [Figure(what, 1e3 * seconds["fedvs"], 6, "ms", 1e3 * seconds["split_avg"], "split_avg")]
