"""An audit of VFL-AFE's Theorem 3.6: epsilon between two batches that `rescale: paper` releases, beside the claim.

    python -m benchmarks.rescaling [RUN ...]

On left halves of MNIST: embeddings of the paper's kind of model before training (where its factor gains most), and of
the parties `left` of runs of `experiments/leakage/mnist.yaml`. In 100 batches of 64 one row is replaced, by another row
of the data or by one that is no digit. Epsilon of one release is exact, at delta 1e-5 / .9987; a canary audit then uses
many equal rows and one far from them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.report import console, grid
from colonnade.common.config.models import CnnConfig
from colonnade.common.data.sources import load_features, prepare
from colonnade.common.models.build import tower
from colonnade.common.parsing.file import load
from colonnade.common.privacy.accounting.accountant import gaussian_epsilon
from colonnade_lab.attacks.audit import Neighbours, audit, exact_epsilon, rescaled
from colonnade_lab.attacks.run import open_run

T, SIGMA, DELTA = 1.0, 2.0, 1e-5
BATCH, BATCHES, ROWS = 64, 100, 1000
FILE = Path(__file__).parents[1] / "experiments" / "leakage" / "mnist.yaml"


def main() -> None:
    torch.set_num_threads(1)
    claim = gaussian_epsilon(SIGMA, DELTA)
    heads = ("model", "the row in its place", f"epsilon (claim {claim:.2f}): median, largest", "exceeds")
    lines = [
        (name, other, f"{found.median():.2f}, {found.max():.2f}", f"{(found > claim).double().mean():.0%}")
        for name, model, x in _models()
        for other, found in _epsilons(model, x)
    ]
    console.print(grid(heads, lines), markup=False, soft_wrap=True)
    draws = torch.Generator().manual_seed(0)
    for spread in (0.3, 0.2, 0.1, 0.05):
        rows = spread * torch.randn(BATCH, 8, generator=draws)
        rows[:, 0] += 0.5
        pair = Neighbours(rows, torch.tensor([-1.0, *[0.0] * 7]), f"deviation {spread:g}")
        least, exact = audit(rescaled(pair, T, SIGMA, DELTA), 2000, 0, 0.99), exact_epsilon(pair, T, SIGMA, DELTA)
        console.print(
            f"{pair.name}: {least.least:.2f} of any, {least.least_gaussian:.2f} of Gaussian, {exact:.2f} exact"
        )


def _models() -> Iterator[tuple[str, nn.Module, Tensor]]:
    config = load(FILE)
    data, rows = config.parties["left"].data, torch.arange(ROWS)
    read = load_features(data, config.federation.party_index("left"), FILE.parent)
    x = prepare(data, read, rows, 0, "left")[rows]
    for seed in (0, 1, 2):
        torch.manual_seed(seed)
        model = tower(CnnConfig(channels=(8, 16), embedding=448, flat=True), (14, 28))
        yield f"CNN, not trained, seed {seed}", model, x
    for folder in sys.argv[1:]:
        run = open_run(Path(folder), captured=False)
        local, columns = run.local("left")
        yield run.folder.name, local, columns[run.schedule.partition.train]


@torch.no_grad()
def _epsilons(model: nn.Module, x: Tensor) -> Iterator[tuple[str, Tensor]]:
    first, draws = x[:1], torch.Generator().manual_seed(0)
    noise = torch.rand(first.shape, generator=draws)
    blank, white = torch.zeros_like(first), torch.ones_like(first)
    strange = {"blank": blank, "noise": noise, "a negative": 1 - first, "white": white}
    h = model.eval()(x)
    others: dict[str, Tensor | None] = {"of the data": None, **{name: model(one)[0] for name, one in strange.items()}}
    for name, other in others.items():
        draws = torch.Generator().manual_seed(0)
        found = []
        for _ in range(BATCHES):
            rows = h[torch.randperm(len(h), generator=draws)[: BATCH + 1]]
            pair = Neighbours(rows[:BATCH], rows[BATCH] if other is None else other, name)
            found.append(exact_epsilon(pair, T, SIGMA, DELTA))
        yield name, torch.tensor(found)


if __name__ == "__main__":
    main()
