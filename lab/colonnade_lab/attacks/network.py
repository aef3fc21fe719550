"""The attacker's own models: a network of two hidden layers, stopped early on a tenth of the known rows; a ridge."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from sklearn.linear_model import RidgeCV
from torch import Tensor, nn

from colonnade.common.config.optimisers import AdamConfig
from colonnade.common.data.rows import generator
from colonnade.common.models.optimiser import build_optimiser

HIDDEN, _BATCH, _RATE = 256, 64, 1e-3
EPOCHS, _PATIENCE = 300, 10
_PENALTIES = [10.0**power for power in range(-3, 7)]
_LEAST = 0.2  # least deviation of an input, relative to the largest

Network = Callable[[Tensor], Tensor]


def fit(x: Tensor, y: Tensor, loss: Callable[[Tensor, Tensor], Tensor], outputs: int, seed: int) -> Network:
    """Trains x -> y by Adam, with early stopping on a tenth of the rows. Inputs are standardised by the statistics of
    `x`.

    `loss` maps outputs (rows, outputs) and y to a mean over rows. The result is the network at the lowest held-out
    loss, which takes inputs on the scale of `x`.
    """
    spread, mean = torch.std_mean(x, dim=0, correction=0)
    spread = spread.clamp(min=(_LEAST * spread.max()).clamp(min=1e-12))  # a pixel that hardly varies is no signal
    network, scaled = _build(x.shape[1], outputs, seed), (x - mean) / spread
    draws = generator("attacker", seed)
    order = torch.randperm(len(x), generator=draws)
    held_out, train = order[: max(1, len(x) // 10)], order[max(1, len(x) // 10) :]
    optimiser = build_optimiser(AdamConfig(lr=_RATE), network.parameters())
    best, kept, since = float("inf"), copy.deepcopy(network.state_dict()), 0
    for _ in range(EPOCHS):
        for batch in torch.split(train[torch.randperm(len(train), generator=draws)], _BATCH):
            optimiser.zero_grad(set_to_none=True)
            torch.autograd.backward(loss(network(scaled[batch]), y[batch]))
            optimiser.step()
        with torch.no_grad():
            now = loss(network(scaled[held_out]), y[held_out]).item()
        since += 1
        if now < best:
            best, kept, since = now, copy.deepcopy(network.state_dict()), 0
        if since == _PATIENCE:
            break
    network.load_state_dict(kept)
    return lambda inputs: _apply(network, (inputs - mean) / spread)


def linear(x: Tensor, y: Tensor) -> tuple[Network, float]:
    """Fits a ridge regression x -> y and returns it with its leave-one-out mean squared error.

    The penalty minimises that error. Every entry is standardised over the rows. A linear map needs far fewer rows than
    a network.
    """
    spread, mean = x.std(correction=0).clamp(min=1e-12), x.mean(0)
    model = RidgeCV(alphas=_PENALTIES)
    model.fit(((x - mean) / spread).double().numpy(), y.double().numpy())

    def apply(inputs: Tensor) -> Tensor:
        made = model.predict(((inputs - mean) / spread).double().numpy())
        return torch.from_numpy(made).float().view(len(inputs), -1)

    return apply, -float(model.best_score_)


def _build(inputs: int, outputs: int, seed: int) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, outputs)
        )


@torch.no_grad()
def _apply(network: nn.Module, inputs: Tensor) -> Tensor:
    return torch.cat([network(part) for part in torch.split(inputs, 4096)])
