"""Accuracy: MNIST among 14 parties, three seeds."""

from __future__ import annotations

from benchmarks.report import Figure
from benchmarks.runs import Run, run

SEEDS = (0, 1, 2)


def main() -> list[Figure]:
    one = [_accuracy(run("vimadmm/mnist.yaml", "federation.epochs=1", f"federation.seed={seed}")) for seed in SEEDS]
    ten = [_accuracy(run("vimadmm/mnist.yaml", f"federation.seed={seed}")) for seed in SEEDS]
    split = [_accuracy(run("split/mnist.yaml", f"federation.seed={seed}")) for seed in SEEDS]
    return [
        Figure("VIMADMM, MNIST, test accuracy after 1 epoch, mean of 3", sum(one) / 3, 96.5, "%", least=True),
        Figure("VIMADMM, MNIST, test accuracy after 10 epochs, mean of 3", sum(ten) / 3, 96.9, "%", least=True),
        Figure(
            "split learning, MNIST, test accuracy after 10 epochs, mean of 3", sum(split) / 3, 96.0, "%", least=True
        ),
    ]


def _accuracy(training: Run) -> float:
    return 100 * float(training.summary["metrics"]["test_accuracy"])
