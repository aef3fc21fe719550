"""Shapes behind bottom models, and a party's own terms, against autograd through the whole."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from client.cut_layer import Adjusted, ShapedBackprop
from common.adjust import AdjustConfig
from common.models.shaped import Shape, Shaped
from common.numerics.fuzzy import fuzzy_c_means
from common.numerics.normality import normality
from common.privacy.rescale import Rescale

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
G = torch.randn(40, 4, generator=torch.Generator().manual_seed(1)) / 40


def shaped(region: str = "sphere", rule: str = "none", *, leaves: bool = False) -> Shaped:
    torch.manual_seed(3)
    body = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    return Shaped(body, Shape(region, 0.7, Rescale(rule, 0.7, 0.1), leaves=leaves))


def by_autograd(model: Shaped, loss) -> list[Tensor]:
    model = copy.deepcopy(model)
    loss(model(X)).backward()
    return [p.grad for p in model.parameters()]


@pytest.mark.parametrize("region", ["ball", "sphere", "positive_ball", "positive_sphere"])
def test_gradients_go_through_region_and_model(region: str) -> None:
    model = shaped(region)
    through = ShapedBackprop(model)
    h = through.forward(X)
    assert torch.equal(h, model(X)) and not h.requires_grad
    through.backward(G.clone())
    for p, expected in zip(model.parameters(), by_autograd(model, lambda h: (h * G).sum()), strict=True):
        assert torch.allclose(p.grad, expected, atol=1e-7) and expected.abs().max() > 0


def test_the_factor_is_a_constant_to_the_gradient() -> None:
    model = shaped("ball", "paper", leaves=True)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.3)
    through = ShapedBackprop(model)
    through.forward(X)
    factor = float(model.shape.rescale.factor)
    through.backward(G.clone())
    alone = shaped("ball")
    alone.load_state_dict({k: v for k, v in model.state_dict().items() if "rescale" not in k}, strict=False)
    expected = by_autograd(alone, lambda h: (h * factor * G).sum())
    assert factor > 1
    for p, wanted in zip(model.parameters(), expected, strict=True):
        assert torch.allclose(p.grad, wanted, rtol=1e-4, atol=1e-7)


def adjusted(model: Shaped, **weights: float) -> Adjusted:
    return Adjusted(ShapedBackprop(model), AdjustConfig(**weights), classes=3)


def test_a_partys_own_terms_are_those_of_equations_6_and_8() -> None:
    model = shaped()
    through = adjusted(model, contrastive=0.3, normality=0.2, confidence=0.4)
    through.forward(X)
    through.backward(G.clone())
    ids, sure = fuzzy_c_means(G, 3).assignments()
    kept = (sure >= 0.4).nonzero().squeeze(1)
    assert 3 < len(kept) < 40

    def loss(h: Tensor) -> Tensor:
        apart = 0.0
        for j in kept.tolist():
            for k in kept.tolist():
                apart = apart + float(ids[j] != ids[k]) * (h[j] - h[k] + 1e-12).norm()
        return (h * G).sum() - 0.3 * apart / len(kept) ** 2 + 0.2 * normality(h)

    for p, expected in zip(model.parameters(), by_autograd(model, loss), strict=True):
        assert torch.allclose(p.grad, expected, atol=1e-5) and (expected != 0).any()


def test_a_last_batch_of_few_rows_goes_without_them() -> None:
    model, plain = shaped(), shaped()
    for rows in (1, 2):
        through, alone = adjusted(model, contrastive=5.0), ShapedBackprop(plain)
        for each in (through, alone):
            each.forward(X[:rows])
            each.backward(G[:rows].clone())
        for p, q in zip(model.parameters(), plain.parameters(), strict=True):
            assert torch.equal(p.grad, q.grad)
