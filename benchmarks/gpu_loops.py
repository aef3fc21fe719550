"""The same training in one process on one device, without messages: the floors of benchmarks/gpu.py."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn

from benchmarks.epoch import PARTIES, ROWS, TAU, bottom
from benchmarks.report import median
from colonnade.common.config.models import ResnetConfig
from colonnade.common.models.build import build_model

BATCH, WIDTH, HALF = 128, 64, (3, 32, 16)
_WARM = 5  # steps excluded from times


def local_steps(device: torch.device, batches: int) -> float:
    """Seconds of the local steps of `batches` VIMADMM rounds, all 14 parties one after the other."""
    models = [bottom().to(device) for _ in range(PARTIES)]
    steps = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-3, fused=True) for m in models]
    _round(models, steps, _batch(device, ROWS[0]))
    _wait(device)
    begin = time.perf_counter()
    for rows in ROWS[:batches]:
        _round(models, steps, _batch(device, rows))
    _wait(device)
    return time.perf_counter() - begin


def resnet_step(device: torch.device, name: str, steps: int) -> float:
    """Median seconds of a step of split learning between two residual networks and a linear head."""
    bottoms = [
        build_model(ResnetConfig(name=name, embedding=WIDTH), HALF, torch.Generator().manual_seed(seed)).to(device)
        for seed in (1, 2)
    ]
    head = nn.Linear(2 * WIDTH, 10).to(device)
    parameters = [p for module in (*bottoms, head) for p in module.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=5e-4, fused=True)
    x, y = torch.randn(2, BATCH, *HALF, device=device), torch.randint(10, (BATCH,), device=device)
    times = []
    for _ in range(steps + _WARM):
        begin = time.perf_counter()
        joined = torch.cat([model(half) for model, half in zip(bottoms, x, strict=True)], 1)
        loss = nn.functional.cross_entropy(head(joined), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        _wait(device)
        times.append(time.perf_counter() - begin)
    return median(times[_WARM:])


def _batch(device: torch.device, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Columns, duals, residuals and a head of a batch."""
    wide = torch.randn(rows, 56, device=device)
    return wide, wide[:, :10] * 0.01, wide[:, 10:20].clone(), torch.randn(60, 10, device=device) * 0.1


def _round(models: list[nn.Module], steps: list[torch.optim.Optimizer], batch: tuple[Tensor, ...]) -> None:
    """Eq. 9 of VIMADMM in plain PyTorch, TAU times a party."""
    x, dual, residual, head = batch
    for model, step in zip(models, steps, strict=True):
        for _ in range(TAU):
            logits = model(x) @ head
            loss = ((dual * logits).sum() + 0.5 * (residual - logits).square().sum()) / len(x)
            step.zero_grad()
            loss.backward()
            step.step()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
