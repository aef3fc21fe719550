"""What a server sees of parties that train on columns of given distributions, without a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.config.models import LinearConfig, MlpConfig, ModelConfig
from colonnade.common.config.optimisers import SgdConfig
from colonnade_lab.attacks.columns.attackers import Knowledge
from colonnade_lab.attacks.columns.matching import Marginals
from colonnade_lab.attacks.columns.sight import Seen, SeenMember, Sight
from tests.support.federation import config

LINEAR, DEEP = LinearConfig(activation="none", embedding=12), MlpConfig(hidden=40, embedding=16, signed=True)
RATE, MOMENTUM, DECAY, BATCH = 0.05, 0.9, 1e-3, 20


def distinct(rows: int, columns: int = 4) -> Tensor:
    """Independent columns of mean 0 and variance 1, none of which is distributed as another: (rows, columns)."""
    draws = torch.Generator().manual_seed(1)
    u = torch.rand(rows, columns, generator=draws, dtype=torch.float64)
    made = torch.stack([(-u[:, k].log()) ** (1 + 0.5 * k) if k % 2 else u[:, k] ** (1 + k) for k in range(columns)], 1)
    return (made - made.mean(0)) / made.std(0, correction=0)


def secret() -> torch.Generator:
    """A start that is none of the candidates."""
    return torch.Generator().manual_seed(987_654_321)


def sight(x: Tensor, model: ModelConfig, starts: Sequence[torch.Generator] | None = None, *, parties: int = 1,
          epochs: int = 3, gradients: bool = True) -> Sight:  # fmt: skip
    """Training by plain steps of torch, with random gradients; of several parties the server sees the sum.

    Args:
        x: (rows, columns), shared out evenly.
        starts: of the models; those that are public if left out.
    """
    federation = config({"name": "split", "embedding": model.embedding}).federation
    size = x.shape[1] // parties
    optimiser = SgdConfig(lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    members = tuple(SeenMember(f"party{k + 1}", size, (size,), model, optimiser) for k in range(parties))
    made = Sight(members, torch.arange(len(x)), (), model.embedding, federation, Path())
    models = [one.double() for one in made.models(starts or public(made))]
    steps = [torch.optim.SGD(one.parameters(), RATE, MOMENTUM, weight_decay=DECAY) for one in models]
    draws, seen = torch.Generator().manual_seed(5), []
    for rows in list(torch.arange(len(x)).split(BATCH)) * epochs:
        total = sum(one(part) for one, part in zip(models, x[rows].split(size, dim=1), strict=True))
        assert isinstance(total, Tensor)
        gradient = torch.randn(total.shape, generator=draws, dtype=torch.float64) / 10
        seen.append(Seen(rows, total.detach(), gradient if gradients else None))
        for step in steps:
            step.zero_grad()
        total.backward(gradient)  # type: ignore[no-untyped-call]
        for step in steps:
            step.step()
    return Sight(members, torch.arange(len(x)), tuple(seen), model.embedding, federation, Path())


def public(made: Sight) -> list[torch.Generator]:
    """Starts as 0.2.0 derived them, by its formula."""
    return [torch.Generator().manual_seed(made.federation.seed * 1009 + k + 1) for k in range(len(made.members))]


def known(x: Tensor, have: int = 4, starts: int = 20) -> Knowledge:
    return Knowledge(x, Marginals.of(x), torch.arange(have), starts, 0)
