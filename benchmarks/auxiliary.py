"""VIMADMM's z for a batch of 1024 x 10: ours against scipy's L-BFGS-B, sample after sample."""

from __future__ import annotations

import time

import numpy as np
import torch
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from benchmarks.report import Figure, in_turn, median
from colonnade.common.models import admm
from colonnade.common.models.losses import CrossEntropy

ROWS, CLASSES, RHO = 1024, 10, 1.0


def main() -> list[Figure]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    targets, total = torch.randint(0, CLASSES, (ROWS,)), torch.randn(ROWS, CLASSES)
    dual = torch.randn(ROWS, CLASSES) * 0.1
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
