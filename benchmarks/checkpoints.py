"""Cost of checkpoints: MNIST among 14 parties, VIMADMM, one every ten rounds.

The rounds right after a checkpoint share the cores with its writing. Their excess over the other rounds is its cost,
measured in one run so that variations of the machine cancel; it is compared with the 50 rounds between two checkpoints
by default.
"""

from __future__ import annotations

from statistics import mean

from benchmarks.report import Figure
from benchmarks.runs import run

_EVERY, _DISTURBED, _DEFAULT = 10, 3, 50


def main() -> list[Figure]:
    """The share of an epoch that checkpoints take by default, and the time until one is committed."""
    sets = ("federation.epochs=4", "federation.evaluate.every=100000", f"federation.checkpoint.rounds={_EVERY}")
    training = run("vimadmm/mnist.yaml", *sets)
    per_epoch = len(training.rounds()) // 4
    full = [e for e in training.rounds()[10:] if e["round"] % per_epoch]  # the last batch of an epoch is smaller
    after = [e["seconds"] for e in full if (e["round"] - 1) % _EVERY < _DISTURBED]
    others = [e["seconds"] for e in full if (e["round"] - 1) % _EVERY >= _DISTURBED]
    cost = _DISTURBED * (_middle(after) - _middle(others))
    commits = [e["seconds"] for e in training.events if e["kind"] == "checkpoint"]
    return [
        Figure("checkpoints, of a MNIST VIMADMM epoch", 100 * cost / (_DEFAULT * _middle(others)), 2.0, "%"),
        Figure("a checkpoint, asked for to committed", mean(commits), 1.0, "s"),
    ]


def _middle(values: list[float]) -> float:
    """The interquartile mean."""
    ordered, quarter = sorted(values), len(values) // 4
    return mean(ordered[quarter : len(ordered) - quarter])
