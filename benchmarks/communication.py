"""Traffic until the test accuracy is 96 %: MNIST among 14 parties, bytes of tensors in training messages.

In one process on the virtual clock with the real server and party sides; tests compare their bytes with those on the
wire, which add less than half a percent.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import torch

from benchmarks.report import Figure
from benchmarks.runs import ROOT, run
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation

SEEDS = (0, 1, 2)
TARGET, MIB = 0.96, 2**20
PAPER = {"vimadmm": 233.0, "vimadmm_j": 87.0}  # Table IV, in its MB, at the end of an epoch
PLAIN = ("federation.compress={up: 32, down: 32}", "federation.batch=1024")


@dataclass
class Curve:
    """Test accuracy over traffic.

    Attributes:
        points: (round, MiB, test accuracy), in order.
    """

    points: list[tuple[int, float, float]] = field(default_factory=list)
    _cohort: Cohort | None = None
    _sent: float = 0.0

    def watch(self, cohort: Cohort) -> None:
        self._cohort = cohort

    def __call__(self, event: Event) -> None:
        if event["kind"] == "round" and self._cohort is not None:
            self._sent = training_bytes(self._cohort) / MIB
        if event["kind"] == "evaluation" and event["part"] == "test":
            self.points.append((event["round"], self._sent, event["test_accuracy"]))

    @property
    def reached(self) -> tuple[int, float]:
        """The first evaluated round with the target accuracy, and the MiB until then; (0, infinity) without one."""
        return next(((round, sent) for round, sent, found in self.points if found >= TARGET), (0, float("inf")))


def trace(file: str, *sets: str) -> Curve:
    path = ROOT / "experiments" / file
    curve = Curve()
    Simulation(load(path, sets), path.parent, telemetry=Telemetry(None, curve), on_cohort=curve.watch).run()
    return curve


def main() -> list[Figure]:
    """Each setting of experiments/vimadmm/table4.yaml and experiments/vimadmm_j/table4.yaml, mean of three seeds."""
    return [
        *_figures("vimadmm", "as the paper", PAPER["vimadmm"], *PLAIN, "federation.protocol.tau=20"),
        *_figures("vimadmm", "compressed", 15),
        *_figures("vimadmm_j", "as the paper", PAPER["vimadmm_j"], *PLAIN, "federation.protocol={name: vimadmm_j}"),
        *_figures("vimadmm_j", "compressed", 4),
    ]


def _figures(protocol: str, how: str, bound: float, *sets: str) -> list[Figure]:
    torch.set_num_threads(2)
    curves = [trace(f"{protocol}/table4.yaml", f"federation.seed={seed}", *sets) for seed in SEEDS]
    mean = sum(curve.reached[1] for curve in curves) / len(curves)
    return [Figure(f"{protocol}, MNIST, {how}: MiB of tensors to 96 %, mean of 3", mean, bound, "MiB")]


def training_bytes(cohort: Cohort) -> int:
    """Bytes of tensors that have crossed these links in training, both ways."""
    books = [book for link in cohort.values() for book in (link.traffic.received, link.traffic.sent)]
    return sum(size for book in books for kind, (_, size) in book.items() if kind != "Evaluation")


def accuracy() -> list[Figure]:
    """Accuracy: MNIST among 14 parties, three seeds."""
    wanted = (
        ("VIMADMM, MNIST, test accuracy after 1 epoch", ("vimadmm/mnist.yaml", "federation.epochs=1"), 96.5),
        ("VIMADMM, MNIST, test accuracy after 10 epochs", ("vimadmm/mnist.yaml",), 96.9),
        ("split learning, MNIST, test accuracy after 10 epochs", ("split/mnist.yaml",), 96.0),
    )
    figures = []
    for what, experiment, bound in wanted:
        runs = [run(*experiment, f"federation.seed={seed}") for seed in SEEDS]
        mean = sum(100 * float(each.summary["metrics"]["test_accuracy"]) for each in runs) / len(runs)
        figures.append(Figure(f"{what}, mean of 3", mean, bound, "%", least=True))
    return figures


if __name__ == "__main__":
    torch.set_num_threads(1)
    for round, sent, found in trace(sys.argv[1], *sys.argv[2:]).points:
        print(f"{round:5d} {sent:8.2f} MiB {found:.2%}")
