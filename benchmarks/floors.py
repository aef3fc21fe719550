"""Floors of a round: the passes and steps of all members in one process, in plain PyTorch, without messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.optim import Optimizer


def joint_step(
    bottoms: Sequence[nn.Module], head: nn.Module, steps: Sequence[Optimizer], *, averaged: bool = False
) -> Callable[[Sequence[Tensor], Tensor], Tensor]:
    """A step of split learning, which takes every party's columns and the labels and returns the loss.

    averaged: the embeddings are averaged, not concatenated.
    """

    def step(parts: Sequence[Tensor], y: Tensor) -> Tensor:
        each = [bottom(x) for bottom, x in zip(bottoms, parts, strict=True)]
        h = torch.stack(each).mean(0) if averaged else torch.cat(each, 1)
        loss = nn.functional.cross_entropy(head(h), y)
        for one in steps:
            one.zero_grad()
        loss.backward()
        for one in steps:
            one.step()
        return loss

    return step


def local_steps(
    models: Sequence[nn.Module], steps: Sequence[Optimizer], parts: Sequence[Tensor], head: Tensor, tau: int
) -> None:
    """A round of VIMADMM's local loss (Eq. 9): `tau` steps of every party over its columns."""
    rows = len(parts[0])
    dual, rest = 0.01 * torch.randn(2, rows, head.shape[1], device=head.device)
    for model, step, x in zip(models, steps, parts, strict=True):
        for _ in range(tau):
            logits = model(x) @ head
            loss = ((dual * logits).sum() + 0.5 * (rest - logits).square().sum()) / rows
            step.zero_grad()
            loss.backward()
            step.step()
