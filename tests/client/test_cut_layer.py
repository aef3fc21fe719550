"""Shapes behind bottom models, and a party's own terms, against autograd through the joint model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from colonnade.client.training.cut_layer import Adjusted, NoisyBackprop, ShapedBackprop
from colonnade.common.config.privacy import PARTS, AdaptivePrivacyConfig
from colonnade.common.config.run_options import AdjustConfig
from colonnade.common.errors import InputError
from colonnade.common.models.clusters import fuzzy_c_means
from colonnade.common.models.pairwise import normality
from colonnade.common.privacy.noise import secure_normals
from colonnade.common.privacy.rows import NoisySteps, RowPlan
from colonnade.common.privacy.shaped import Rescale, Shape, Shaped

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
    return Adjusted(ShapedBackprop(model), AdjustConfig(**weights), 3, {})


def test_a_partys_own_terms_are_those_of_equations_6_and_8() -> None:
    model = shaped()
    through = adjusted(model, contrastive=0.3, normality=0.2, confidence=0.4)
    through.forward(X)
    through.backward(G.clone())
    ids, sure = fuzzy_c_means(G / G.norm(dim=1, keepdim=True), 3).assignments()
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


def noisy(sigma: float = 1e-6, clip: float = 0.02, steps: int = 1) -> NoisySteps:
    said = {"clip": 0.7, "noise_multiplier": sigma, "delta": 1e-5, "steps": {"clip": clip, "cost": 0.04}}
    config = AdaptivePrivacyConfig(mechanism="adaptive", **said)
    return NoisySteps(RowPlan(config, sigma, 1, 1, None, 40), steps, secure_normals)


@pytest.mark.parametrize("by_hand", [True, False])
def test_every_rows_gradient_is_clipped_by_itself(by_hand: bool) -> None:
    """One backward pass a row is the oracle; the noise is too small to be seen."""
    model, noise = shaped("positive_sphere"), noisy()
    if not by_hand:
        model.body.append(nn.Identity())
    assert noise.pay() == 104 * PARTS // 100
    through = NoisyBackprop(model, noise)
    assert torch.equal(through.forward(X), model(X))
    through.backward(G.clone())
    parameters, mean = list(model.parameters()), None
    clipped = 0
    for x, g in zip(X, G, strict=True):
        share = torch.autograd.grad((model(x.unsqueeze(0)) * g * len(X)).sum(), parameters)
        norm = torch.cat([part.flatten() for part in share]).norm()
        clipped += int(norm > 0.02)
        scaled = [part * min(1, 0.02 / float(norm.clamp(min=1e-12))) / len(X) for part in share]
        mean = scaled if mean is None else [a + b for a, b in zip(mean, scaled, strict=True)]
    assert clipped > 10
    for p, expected in zip(parameters, mean, strict=True):
        assert torch.allclose(p.grad, expected, atol=1e-6) and expected.abs().max() > 1e-4


def test_noise_of_steps_has_the_configured_cost() -> None:
    """sigma_0 = 2 sigma / sqrt(cost): a step's Gaussian mechanism, of sensitivity 2 C_0, costs cost / sigma^2."""
    noise = noisy(sigma=3.0, clip=0.5)
    nothing = [torch.zeros(8, 300, 400)]
    noise.pay()
    (mean,) = noise.mean(nothing)
    assert float(mean.std()) * 8 == pytest.approx(0.5 * 2 * 3.0 / 0.2, rel=0.01)


def test_no_step_without_a_release() -> None:
    noise, rows = noisy(steps=2), [torch.zeros(4, 3)]
    with pytest.raises(InputError, match="no release has paid for"):
        noise.mean(rows)
    assert noise.pay() == 108 * PARTS // 100
    noise.mean(rows), noise.mean(rows)
    with pytest.raises(InputError, match="no release has paid for"):
        noise.mean(rows)
