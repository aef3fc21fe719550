"""A party's features from its responses, by a server that knows the party's model.

The white-box attack of He, Zhang and Lee 2019, "Model Inversion Attacks Against Collaborative Inference", Section 4:
find the row whose embedding is nearest to the one that was sent. Rows that the server knows give the prior.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.client.training.local import Local
from colonnade.common.errors import InputError
from colonnade_lab.attacks.features.prior import Prior, likeliest
from colonnade_lab.attacks.inversion import Inversion, judge, known_rows
from colonnade_lab.attacks.predictions import predicted, shows_parts
from colonnade_lab.attacks.run import AttackedRun

_WEIGHTS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # weights of the prior against the misfit in units of the embeddings' variance
_STEPS = 300


def invert_knowing(run: AttackedRun, party: str, known: float, seed: int) -> Inversion:
    """Inverts a party's responses about training rows after training, of which the server knows a share."""
    if not run.opens or not shows_parts(run):
        raise InputError(
            f"{run.protocol}: the server is shown no party's part of a model that can be restored",
            hint="--kind features attacks what is predicted",
        )
    rows, parts = predicted(run)
    rows = rows[: int(torch.isin(rows, run.schedule.partition.train).sum())]  # training rows come first
    said = parts[run.config.federation.names.index(party)][: len(rows)].flatten(1)
    local, columns = run.local(party)
    x, y = columns[rows], run.labels[rows]
    have, rest = known_rows(party, len(rows), known, seed)
    made, weight = explain(local, x[have], said[have], said[rest])
    name = f"nearest embedding, prior {weight:g}"
    shape = x[rest].shape
    return judge(made.view(shape), x[have], x[rest], y[have], y[rest], width=said.shape[1], decoder=name, seed=seed)


def explain(local: Local, x: Tensor, said: Tensor, about: Tensor) -> tuple[Tensor, float]:
    """Finds rows, float32 (m, numbers of a row), whose outputs are near `about`, and the weight of the prior.

    The weight is the best one on the second half of the known rows, with the first half as the prior.

    Args:
        local: the party's part of the model.
        x: known rows, float32 (n, ...).
        said: the party's outputs for them, (n, width).
        about: its outputs for the other rows, (m, width).
    """
    local.requires_grad_(requires_grad=False)
    variance, half = said.var(0).sum().clamp(min=1e-12), len(x) // 2

    def made(prior: Prior, sent: Tensor, weight: float) -> Tensor:
        def misfit(free: Tensor) -> Tensor:
            missed: Tensor = local(free.view(-1, *x.shape[1:])).flatten(1) - sent
            return missed.square().sum(1) / variance

        return likeliest(prior, misfit, len(sent), weight / len(prior.basis), _STEPS)

    first, truth = Prior.of(x[:half]), x[half:].flatten(1)
    errors = {weight: functional.mse_loss(made(first, said[half:], weight), truth).item() for weight in _WEIGHTS}
    best = min(errors, key=errors.__getitem__)
    return made(Prior.of(x), about, best), best
