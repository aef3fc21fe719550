"""Algorithm 1 in one process on scikit-learn's digits: the steps combined."""

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from colonnade.common.models.admm import head_gradients, local_gradient, minimise_z, residual, update_dual
from colonnade.common.models.backprop import backprop
from colonnade.common.models.local_steps import local_steps
from colonnade.common.models.losses import CrossEntropy

PARTIES, TRAIN, WIDTH = 4, 600, 32
RHO, STEPS, ROUNDS = 1.0, 10, 8


def digits() -> tuple[list[Tensor], Tensor]:
    """Two columns of pixels a party, standardised, and the labels, in a random order."""
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    pixels = torch.tensor(images, dtype=torch.float32)[order].reshape(-1, 8, 8)
    pixels = (pixels - pixels.mean()) / pixels.std()
    columns = [pixels[:, :, 2 * k : 2 * k + 2].reshape(-1, 16).contiguous() for k in range(PARTIES)]
    return columns, torch.tensor(labels)[order]


def tower() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, WIDTH), nn.ReLU())


@torch.no_grad()
def logits(models: list[nn.Sequential], heads: Tensor, columns: list[Tensor]) -> Tensor:
    return sum(model(x) @ head for model, x, head in zip(models, columns, heads, strict=True))


def train(head_lr: float, *, new_heads: bool) -> tuple[float, float]:
    """The accuracy on unseen digits, and the mean ‖ŷ − z‖, after some rounds.

    `new_heads` takes the residuals from the heads after their step, as Eq. 8 is printed; otherwise
    they come from the sum that z and the heads were computed from.
    """
    columns, labels = digits()
    seen, y = [x[:TRAIN] for x in columns], labels[:TRAIN]
    torch.manual_seed(0)
    models = [tower() for _ in range(PARTIES)]
    heads = torch.stack([nn.init.xavier_uniform_(torch.empty(WIDTH, 10)) for _ in range(PARTIES)])
    optimisers = [
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True) for model in models
    ]
    dual, gap = torch.zeros(TRAIN, 10), torch.tensor(0.0)
    for _ in range(ROUNDS):
        with torch.no_grad():
            embeddings = torch.stack([model(x) for model, x in zip(models, seen, strict=True)])
        parts = embeddings @ heads
        total = parts.sum(dim=0)
        z = minimise_z(y, dual, total, RHO, CrossEntropy())
        dual = update_dual(dual, total, z, RHO)
        gap = (total - z).norm(dim=1).mean()
        heads = heads - head_lr * head_gradients(embeddings, heads, local_gradient(total, dual, z, RHO))
        if new_heads:
            parts = embeddings @ heads
        targets = residual(z, parts.sum(dim=0), parts)
        for k, (model, optimiser) in enumerate(zip(models, optimisers, strict=True)):
            at = {"head": heads[k], "dual": dual, "residual": targets[k]}
            local_steps(backprop(model), optimiser.step, seen[k], **at, rho=RHO, steps=STEPS)
    unseen = logits(models, heads, [x[TRAIN:] for x in columns])
    return float((unseen.argmax(dim=1) == labels[TRAIN:]).double().mean()), float(gap)


@pytest.mark.parametrize("head_lr", [0.1, 1.0])
def test_residuals_from_the_old_sum_train_four_parties_in_eight_rounds(head_lr: float) -> None:
    accuracy, gap = train(head_lr, new_heads=False)
    assert accuracy > 0.88
    assert gap < 0.1


def test_residuals_from_the_new_heads_diverge_where_the_heads_step_far() -> None:
    accuracy, _ = train(1.0, new_heads=True)
    assert accuracy < 0.3
