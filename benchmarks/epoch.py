"""An epoch of VIMADMM among 14 processes, against the bare local steps.

The floor is work that no protocol can save: 14 parties x 20 steps x 53 batches of the local model in plain torch loops,
seven parties in each of two processes on two cores, with nothing sent.
"""

from __future__ import annotations

import multiprocessing
import time
from statistics import mean

import numpy as np
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits
from torch import nn

from benchmarks.floors import joint_step, local_steps
from benchmarks.report import Figure, in_turn, median
from benchmarks.runs import run
from colonnade.common.models import admm
from colonnade.common.models.losses import CrossEntropy

PARTIES, TAU, ROWS = 14, 20, [1024] * 52 + [752]
_ONLY_TRAINING = "federation.evaluate.every=100000"


def main() -> list[Figure]:
    """Measures the floor before and after a run of two epochs, whose second is compared."""
    before = bare_epoch()
    training = run("vimadmm/mnist.yaml", "federation.epochs=2", _ONLY_TRAINING)
    floor = (before + bare_epoch()) / 2
    seconds = sum(event["seconds"] for event in training.rounds()[53:])
    return [
        Figure("VIMADMM epoch, 14 parties, mutual TLS", seconds, 1.25, "s", floor, "bare local steps"),
        Figure("VIMADMM epoch, 14 parties, mutual TLS", seconds, 15.0, "s"),
        *_bytes(training.summary["bytes"]["parties"], len(training.rounds())),
    ]


def split() -> list[Figure]:
    """A round of split learning among 14 processes against the same computation in one."""
    floor = joint_round()
    training = run("split/mnist.yaml", "federation.epochs=4", _ONLY_TRAINING)
    floor = (floor + joint_round()) / 2
    ours = 1e3 * training.round_seconds(53)
    return [Figure("split-learning round, 14 parties", ours, 1.5, "ms", 1e3 * floor, "the same in one process")]


def bare_epoch() -> float:
    """Seconds that the slower of two processes takes for its half of the steps."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, _prepare) as pool:
        return max(pool.map(_local_steps, [PARTIES // 2] * 2, chunksize=1))


def joint_round() -> float:
    """Seconds that one process takes for a round of split learning, with all 14 bottom models and the head."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_joint_rounds)


def bottom() -> nn.Module:
    """The local model of MNIST among 14: 56-120-60."""
    return nn.Sequential(nn.Linear(56, 120), nn.ReLU(), nn.Linear(120, 60), nn.ReLU())


def _prepare() -> None:
    """Sets one thread a process, and triggers torch's lazy imports."""
    torch.set_num_threads(1)
    _local_steps(1, [256])


def _local_steps(parties: int, batches: list[int] = ROWS) -> float:
    models = [bottom() for _ in range(parties)]
    steps = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3) for m in models]
    head = torch.randn(60, 10) * 0.1
    begin = time.perf_counter()
    for rows in batches:
        local_steps(models, steps, torch.randn(parties, rows, 56).unbind(), head, TAU)
    return time.perf_counter() - begin


def _joint_rounds() -> float:
    torch.set_num_threads(torch.get_num_threads())  # all cores, as a process of its own would use
    bottoms, head = [bottom() for _ in range(PARTIES)], nn.Linear(840, 10, bias=False)
    steps = [torch.optim.SGD(b.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3) for b in bottoms]
    steps.append(torch.optim.SGD(head.parameters(), lr=0.01, weight_decay=1e-3))
    x, y = torch.randn(PARTIES, 1024, 56).unbind(), torch.randint(0, 10, (1024,))
    step = joint_step(bottoms, head, steps)
    return median(in_turn(lambda: step(x, y), repeats=50, warm=10)[0])


def _bytes(parties: dict[str, dict[str, dict[str, int]]], rounds: int) -> list[Figure]:
    """Payload per party and full round, as in Table IV, without the evaluations at the end."""
    one = next(iter(parties.values()))
    share = (52 * 1024 + 752) / 53 / 1024  # the last batch of an epoch has 752 rows
    evaluated = 16000 * 60 * 4
    up = (one["up"]["payload"] - evaluated) / rounds / share
    down = (one["down"]["payload"] / rounds - 60 * 10 * 4) / share + 60 * 10 * 4
    return [
        Figure("payload up, a party and round of 1024 rows", up, 1.001, "bytes", 245_760, "Table IV"),
        Figure("payload down, a party and round of 1024 rows", down, 1.001, "bytes", 84_320, "Table IV"),
    ]


_EVERY, _DISTURBED, _DEFAULT = 10, 3, 50


def checkpoints() -> list[Figure]:
    """Cost of checkpoints: MNIST among 14 parties, VIMADMM, one every ten rounds.

    The rounds right after a checkpoint share the cores with its writing. Their excess over the other rounds is its
    cost, measured in one run so that variations of the machine cancel; it is compared with the 50 rounds between two
    checkpoints by default.
    """
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


BATCH, CLASSES, RHO = 1024, 10, 1.0


def auxiliary() -> list[Figure]:
    """VIMADMM's z for a batch of 1024 x 10: ours against scipy's L-BFGS-B, sample after sample."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    targets, total = torch.randint(0, CLASSES, (BATCH,)), torch.randn(BATCH, CLASSES)
    dual = torch.randn(BATCH, CLASSES) * 0.1
    loss = CrossEntropy()
    z = admm.minimise_z(targets, dual, total, RHO, loss)
    ours = median(in_turn(lambda: admm.minimise_z(targets, dual, total, RHO, loss), repeats=50)[0])
    each = zip(targets.tolist(), total.double().numpy(), dual.double().numpy(), strict=True)
    with threadpool_limits(1):  # BLAS threads that wait for each other make it 18 times as slow on a busy machine
        begin = time.perf_counter()
        theirs = np.stack([_scipy(*row) for row in each])
        rival = time.perf_counter() - begin
    apart = float(np.abs(z.numpy() - theirs).max())
    return [
        Figure("z of 1024 x 10, one thread", 1e3 * ours, 0.01, "ms", 1e3 * rival, "scipy L-BFGS-B a sample"),
        Figure("largest difference from scipy", apart, 1e-4, ""),
    ]


def _scipy(label: int, total: np.ndarray, dual: np.ndarray) -> np.ndarray:
    def objective(z: np.ndarray) -> tuple[float, np.ndarray]:
        shifted = np.exp(z - z.max())
        p = shifted / shifted.sum()
        value = np.log(shifted.sum()) + z.max() - z[label] - dual @ z + RHO / 2 * ((total - z) ** 2).sum()
        return float(value), p - np.eye(CLASSES)[label] - dual - RHO * (total - z)

    return minimize(objective, total, jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9}).x
