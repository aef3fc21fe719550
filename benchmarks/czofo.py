"""Duration of a turn of VFL-CZOFO with q = 100, against a turn of VAFL and against the direct computation.

MNIST, two halves, batches of 64 and embeddings of 64, heads with 128 hidden units, as processes over mutual TLS; a
round is two turns. The direct computation is q forward passes of a head over the batch, one direction after the other,
with losses in float32 subtracted, as in the authors' code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.report import Figure, times
from benchmarks.runs import rounds_in_turn
from colonnade.common.models.zeroth_order import Directions
from colonnade.server.training.fusion.differences import EmbeddingColumns, Slopes

ROWS, WIDTH, Q = 64, 64, 100
_SHORT = ("federation.rounds=300", "federation.epochs=0", "federation.evaluate.every=1000", "federation.rows.test=256")


def main() -> list[Figure]:
    return [_differences(), _turn()]


def _differences() -> Figure:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(2 * WIDTH, 128), nn.ReLU(), nn.Linear(128, 10))
    h, y = torch.randn(ROWS, 2 * WIDTH).relu(), torch.randint(10, (ROWS,))
    directions, slopes = Directions(0, "sphere", Q, WIDTH), Slopes(head, mu=1e-3)

    @torch.no_grad()
    def straight() -> Tensor:
        rest, found = functional.cross_entropy(head(h), y), []
        for _ in range(Q):
            u = functional.normalize(torch.randn(ROWS, WIDTH), dim=1)
            moved = h.clone()
            moved[:, :WIDTH] += 1e-3 * u
            found.append(functional.cross_entropy(head(moved), y) - rest)
        return torch.stack(found)

    floor, ours = times(straight, lambda: slopes(h, directions.of("party1", 1, ROWS).u, y, EmbeddingColumns(0)).mean(0))
    return Figure(f"{Q} differences, {ROWS} x {WIDTH}, head 128", ours, 0.5, "ms", floor, "one pass after the other")


def _turn() -> Figure:
    vafl, czofo = (
        found / 2 for found in rounds_in_turn(("vafl/mnist_halves.yaml", *_SHORT), ("czofo/mnist.yaml", *_SHORT))
    )
    return Figure(f"VFL-CZOFO turn, q = {Q}, among two", czofo, 3.0, "ms", vafl, "a turn of VAFL")
