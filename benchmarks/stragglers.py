"""Policies against stragglers: 16 parties under FedVS's delay pattern, on the virtual clock and as processes.

VIMADMM on the digits, four pixels a party. The delays are those of FedVS, Section 6.2, divided by four, so that the
processes finish in minutes; the virtual clock has delays only, so the difference is computing and the wire.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.report import Figure, console
from benchmarks.runs import ROOT, run
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation

EXPERIMENT = "vimadmm/stragglers.yaml"
POLICIES = {
    "wait for all": "federation.quorum=wait",
    "deadline 0.5 s": "federation.quorum={deadline: 0.5}",
    "fastest 12": "federation.quorum={fastest: 12}",
}


def main() -> list[Figure]:
    """One line a policy: seconds of the virtual clock beside those of the processes, and the accuracy."""
    figures = []
    for name, policy in POLICIES.items():
        begin = time.perf_counter()
        virtual = Simulation(load(ROOT / "experiments" / EXPERIMENT, (policy,)), Path()).run()
        simulated = time.perf_counter() - begin
        training = run(EXPERIMENT, policy)
        rounds = training.rounds()
        real, expected = (every[-1]["time"] - every[0]["time"] for every in (rounds, virtual.of_kind("round")))
        console.print(
            f"{name}: accuracy {_accuracy(virtual.server.metrics)} on the virtual clock, "
            f"{_accuracy(training.summary['metrics'])} as processes; missing "
            f"{len(virtual.of_kind('missing'))} and {sum(training.summary['missing'].values())} answers; "
            f"simulated in {simulated:.1f} s"
        )
        what = f"16 parties, FedVS delays, {name}: {len(rounds)} rounds"
        figures.append(Figure(what, real, 1.15, "s", expected, "the virtual clock"))
    return figures


def _accuracy(metrics: dict[str, float]) -> str:
    return f"{100 * metrics['test_accuracy']:.1f} %"
