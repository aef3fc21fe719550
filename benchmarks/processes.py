"""Cost of more parties, each a process: launch, a round, and memory, among 2, 4, 8 and 16.

Split learning on columns of noise (scaling.py), batches of 256, over mutual TLS as `up` starts it. A round is compared
with the same federation on the virtual clock in one process, which runs both sides without a network.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import torch

from benchmarks.report import Figure, console, in_turn
from benchmarks.runs import ROOT, finished, members, processor_times, run, started
from benchmarks.scaling import Setting, point_of, write
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation


def start() -> list[Figure]:
    """Fourteen parties from launch to the first round, and the memory of each, in the second epoch of MNIST."""
    sets = ("federation.epochs=2", "federation.evaluate.every=100000")
    with started("vimadmm/mnist.yaml", *sets) as (process, out):
        beyond = memory(process, out, rounds=60)
        summary = finished(process, out).summary
    return [
        Figure("14 parties, launch to first round", summary["seconds_to_first_round"], 5.0, "s"),
        Figure("proportional memory a party beyond the first", beyond, 60.0, "MB"),
    ]


def memory(process: subprocess.Popen[bytes], out: Path, rounds: int, of: str = "pss") -> float:
    """Mean MB of the parties except the smallest, after `rounds` rounds: proportional (pss), or private (uss)."""
    _, (_server, *parties) = members(process, out, rounds)
    sizes = sorted(int(getattr(party.memory_full_info(), of)) for party in parties)
    return sum(sizes[1:]) / len(sizes[1:]) / 1e6


PARTIES = (2, 4, 8, 16)
ROUNDS, WARM = 250, 20


def main() -> list[Figure]:
    """Three figures for each number of parties, without bounds."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        return [figure for parties in PARTIES for figure in _among(Setting("split", parties), Path(scratch))]


def _among(setting: Setting, folder: Path) -> list[Figure]:
    with started(setting.tree(ROUNDS), base=folder) as (process, out):
        beyond = memory(process, out, rounds=WARM)
        run = finished(process, out)
    alone = point_of(setting, folder).seconds
    who = f"{setting.parties} parties as processes"
    return [
        Figure(f"{who}, launch to first round", run.summary["seconds_to_first_round"], None, "s"),
        Figure(
            f"{who}, a split round", 1e3 * run.round_seconds(WARM), None, "ms", 1e3 * alone,
            "the same in one process, no wire",
        ),
        Figure(f"{who}, proportional memory of one", beyond, None, "MB"),
    ]  # fmt: skip


MANY = (10, 30, 100)
ANSWERS = 6000  # of all parties in a run


def many() -> list[Figure]:
    """Ten, thirty and a hundred parties as processes: private memory of each, and the server's processor time."""
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        for parties in MANY:
            spent, private = _served(Setting("split", parties), Path(scratch))
            what, first = f"{parties} parties, the server's time a round", figures[0].ours if figures else None
            floor = None if first is None else first * parties / MANY[0]
            bound = None if first is None else 1.25
            figures.append(Figure(what, spent, bound, "ms", floor, f"of {MANY[0]} parties, by number"))
    return [*figures, Figure(f"{parties} parties, private memory of one beyond the first", private, 55.0, "MB")]


def _served(setting: Setting, folder: Path) -> tuple[float, float]:
    """Milliseconds of a server's processor in a round, and the private MB of a party beyond the first."""
    rounds = ANSWERS // setting.parties
    tree = setting.tree(rounds)
    tree["federation"]["timeouts"] = {"away": 600}  # a hundred processes begin on few cores
    with started(tree, base=folder) as (process, out):
        private = memory(process, out, rounds // 10, "uss")
        server, *_ = processor_times(process, out, rounds // 2, 9 * rounds // 10)
        finished(process, out)
    return 1e3 * server, private


EXPERIMENT = "vimadmm/stragglers.yaml"
POLICIES = {
    "wait for all": "federation.quorum=wait",
    "deadline 0.5 s": "federation.quorum={deadline: 0.5}",
    "fastest 12": "federation.quorum={fastest: 12}",
}


def stragglers() -> list[Figure]:
    """Policies against stragglers: 16 parties under FedVS's delay pattern, on the virtual clock and as processes.

    VIMADMM on the digits, four pixels a party. The delays are those of FedVS, Section 6.2, divided by four, so that the
    processes finish in minutes; the virtual clock has delays only, so the difference is computing and the wire.
    """
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


_DEMO = ROOT / "experiments" / "demo.yaml"
_REPEATS = 5
_FROM_PYTHON = "import sys, colonnade; colonnade.simulate(sys.argv[1], out=sys.argv[2])"


def python() -> list[Figure]:
    """The demo simulated from Python, against `colonnade simulate`; and the import of the package.

    All are processes of their own, in turn, and the fastest of each counts.
    """
    turn = count()

    def call(*command: str) -> None:
        subprocess.run([sys.executable, *command], check=True, capture_output=True)

    with tempfile.TemporaryDirectory() as folder:
        command, python, imported = in_turn(
            lambda: call("-m", "colonnade", "simulate", str(_DEMO), "--out", f"{folder}/{next(turn)}"),
            lambda: call("-c", _FROM_PYTHON, str(_DEMO), f"{folder}/{next(turn)}"),
            lambda: call("-c", "import colonnade"),
            repeats=_REPEATS,
        )
    return [
        Figure("the demo, simulated from Python", min(python), 1.05, "s", min(command), "the command"),
        Figure("a process that imports colonnade", min(imported), 0.3, "s"),
    ]
