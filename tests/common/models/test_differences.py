"""Differences of a loss, against float64 all the way."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.models.zeroth_order import estimate, spread
from colonnade.server.training.fusion import differences
from colonnade.server.training.fusion.differences import EmbeddingColumns, Slopes

HEADS: dict[str, Callable[[int], nn.Module]] = {
    "linear": lambda inputs: nn.Linear(inputs, 3, bias=False),
    "mlp": lambda inputs: nn.Sequential(nn.Linear(inputs, 9), nn.ReLU(), nn.Dropout(0.5), nn.Linear(9, 3)),
    "deep": lambda inputs: nn.Sequential(
        nn.Linear(inputs, 7), nn.ReLU(), nn.Linear(7, 8), nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3)
    ),
    "any": lambda inputs: nn.Sequential(nn.Linear(inputs, 7), nn.Tanh(), nn.Linear(7, 3)),
}


def brute_force(
    head: nn.Module, h: Tensor, u: Tensor, y: Tensor, place: EmbeddingColumns, mu: float, sign: int = 1
) -> Tensor:
    """Losses at mu u minus losses at rest, one direction after the other, everything in float64."""
    exact = copy.deepcopy(head).double().eval()

    def loss(h: Tensor) -> Tensor:
        return functional.cross_entropy(exact(h), y if y.dim() == 1 else y.double(), reduction="none")

    found = torch.empty(u.shape[:2], dtype=torch.float64)
    with torch.no_grad():
        for j in range(u.shape[1]):
            moved = h.double().clone()
            moved[:, place.first : place.first + u.shape[2]] += sign * mu * place.scale * u[:, j].double()
            found[:, j] = loss(moved) - loss(h.double())
    return found


def case(seed: int, kind: str, rows: int = 6, q: int = 5, width: int = 4) -> tuple[nn.Module, Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    head = HEADS[kind](3 * width)
    return head, torch.randn(rows, 3 * width).relu(), torch.randn(rows, q, width), torch.randint(3, (rows,))


@given(st.integers(0, 999), st.sampled_from(("linear", "mlp", "deep")), st.sampled_from((1e-5, 1e-3, 1.0)))
def test_they_are_right_to_the_precision_of_float32(seed: int, kind: str, mu: float) -> None:
    head, h, u, y = case(seed, kind)
    exact = brute_force(head, h, u, y, EmbeddingColumns(4), mu)
    found = Slopes(head, mu=mu)(h, u, y, EmbeddingColumns(4)) * mu
    assert (found - exact).abs().max() <= 1e-5 * exact.abs().max() + 1e-15


@given(st.integers(0, 999), st.sampled_from(tuple(HEADS)))
def test_both_ways(seed: int, kind: str) -> None:
    head, h, u, y = case(seed, kind)
    there, back = (brute_force(head, h, u, y, EmbeddingColumns(0, 0.5), 0.1, sign) for sign in (1, -1))
    found = Slopes(head, mu=0.1, antithetic=True)(h, u, y, EmbeddingColumns(0, 0.5))
    assert torch.allclose(found, (there - back) / 0.2, atol=2e-5)


@given(st.integers(0, 999))
def test_labels_may_be_distributions(seed: int) -> None:
    head, h, u, _ = case(seed, "mlp")
    y = torch.softmax(torch.randn(6, 3), 1)
    exact = brute_force(head, h, u, y, EmbeddingColumns(8), 1e-2)
    assert torch.allclose(Slopes(head, mu=1e-2)(h, u, y, EmbeddingColumns(8)) * 1e-2, exact, rtol=1e-4, atol=1e-8)


def test_of_any_other_head_they_are_as_good_as_its_logits() -> None:
    head, h, u, y = case(0, "any")
    exact = brute_force(head, h, u, y, EmbeddingColumns(4), 1e-2)
    assert torch.allclose(Slopes(head, mu=1e-2)(h, u, y, EmbeddingColumns(4)) * 1e-2, exact, atol=3e-7)


def test_at_the_scale_of_the_paper_subtracted_losses_would_be_noise() -> None:
    """Batch 64, q 100, a 128-128-10 head, mu 1e-3: where losses in float32 are subtracted, a twelfth is error."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))
    h, y, u = (
        torch.randn(64, 128).relu(),
        torch.randint(10, (64,)),
        functional.normalize(torch.randn(64, 100, 64), dim=2),
    )
    exact = brute_force(head, h, u, y, EmbeddingColumns(64), 1e-3).mean(0)
    found = Slopes(head, mu=1e-3)(h, u, y, EmbeddingColumns(64)).mean(0) * 1e-3
    with torch.no_grad():
        moved = h.unsqueeze(1).repeat(1, 100, 1)
        moved[:, :, 64:] += 1e-3 * u
        losses = functional.cross_entropy(head(moved).flatten(0, 1), y.repeat_interleave(100), reduction="none")
        subtracted = losses.view(64, 100).mean(0) - functional.cross_entropy(head(h), y)
    size = exact.abs().mean()
    assert (found - exact).abs().max() < 1e-5 * size
    assert (subtracted - exact).abs().max() > 1e-3 * size


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    head, h, u, y = case(4, "deep", rows=11)
    whole = Slopes(head, mu=1e-3)(h, u, y, EmbeddingColumns(4))
    monkeypatch.setattr(differences, "BLOCK", 100)
    assert torch.allclose(Slopes(head, mu=1e-3)(h, u, y, EmbeddingColumns(4)), whole, rtol=1e-5, atol=1e-9)


def test_the_head_stays_as_it_was() -> None:
    for kind in HEADS:
        head, h, u, y = case(0, kind)
        before = copy.deepcopy(head.state_dict())
        Slopes(head, mu=1e-3)(h, u, y, EmbeddingColumns(4))
        assert head.training and all(torch.equal(before[key], value) for key, value in head.state_dict().items())
        assert all(parameter.grad is None for parameter in head.parameters())


def gradient(head: nn.Module, h: Tensor, y: Tensor) -> Tensor:
    """Gradient of the batch's mean loss at columns 4 to 7, by autograd."""
    leaf = h.clone().requires_grad_()
    functional.cross_entropy(head.eval()(leaf), y).backward()
    head.train()
    assert leaf.grad is not None
    return leaf.grad[:, 4:8]


@pytest.mark.parametrize("kind", HEADS)
def test_along_every_axis_the_estimate_is_the_gradient(kind: str) -> None:
    head, h, _, y = case(1, kind)
    axes = torch.eye(4).expand(6, 4, 4).contiguous()
    slopes = Slopes(head, mu=1e-3 if kind == "any" else 1e-5)(h, axes, y, EmbeddingColumns(4))
    assert torch.allclose(estimate(slopes.float(), axes, 4), gradient(head, h, y), atol=2e-4)


@pytest.mark.parametrize("rowwise", [True, False])
def test_the_estimate_is_unbiased_and_has_the_stated_spread(rowwise: bool) -> None:
    """20,000 estimates of 5 directions each; their covariance is the spread of one direction over 5."""
    head, h, _, y = case(2, "mlp")
    true, found, spreads = gradient(head, h, y), [], []
    draws = torch.Generator().manual_seed(0)
    slopes = Slopes(head, mu=1e-5)
    for _ in range(2000):
        u = torch.randn(6, 5, 4, generator=draws)
        delta = slopes(h, u, y, EmbeddingColumns(4)).float()
        delta = delta if rowwise else delta.mean(0, keepdim=True)
        found.append(estimate(delta, u, 1))
        spreads.append(spread(delta, u, 1))
    estimates = torch.stack(found).double()
    error = estimates.std(0) / 2000**0.5
    assert ((estimates.mean(0) - true).abs() < 5 * error + 1e-6).all()
    variance = estimates.var(0).sum(1).mean() * 6**2 * 5  # of a row's own loss, of one direction
    assert abs(sum(spreads) / len(spreads) / variance - 1) < 0.1
