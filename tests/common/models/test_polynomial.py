"""The polynomial network against the paper's own sum, and the size of its initial outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from colonnade.common.config.models import ModelConfig, PolynomialConfig
from colonnade.common.models.backprop import backprop
from colonnade.common.models.build import build_model
from colonnade.common.models.polynomial import Polynomial
from tests.support.seeded import seeded

model = TypeAdapter(ModelConfig).validate_python
SIZES = st.integers(1, 6)


@given(rows=SIZES, inputs=SIZES, layers=st.integers(1, 4), width=SIZES, seed=st.integers(0, 99))
def test_it_is_the_sum_of_the_powers_layers(rows: int, inputs: int, layers: int, width: int, seed: int) -> None:
    """h = sum_i (x^i W^i + b^i), with the paper's D biases, of which only the sum counts."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, inputs, generator=draws, dtype=torch.float64)
    tower = Polynomial(inputs, layers, width).double()
    weights = [torch.randn(inputs, width, generator=draws, dtype=torch.float64) for _ in range(layers)]
    biases = [torch.randn(width, generator=draws, dtype=torch.float64) for _ in range(layers)]
    tower.load_state_dict({"weight": torch.cat([*weights, sum(biases)[None]])})
    expected = sum(x**i @ w + b for i, w, b in zip(range(1, layers + 1), weights, biases, strict=True))
    torch.testing.assert_close(tower(x), expected)


def test_the_embedding_is_one_product() -> None:
    tower = build_model(model({"name": "polynomial", "layers": 3, "embedding": 5}), (2, 4), start=seeded(0))
    assert [(name, tuple(p.shape)) for name, p in tower.named_parameters()] == [("weight", (25, 5))]
    x = torch.randn(7, 2, 4)
    powers = tower.powers(x)
    torch.testing.assert_close(powers[:, 8:16], x.flatten(1) ** 2)
    assert powers.shape == (7, 25) and bool((powers[:, -1] == 1).all())
    torch.testing.assert_close(tower(x), powers @ tower.weight)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_it_begins_with_embeddings_of_the_same_size_however_many_layers(layers: int) -> None:
    """A third, as torch's linear layer gives, for standard normal values: powers of 3 do not drown the others."""
    tower = build_model(PolynomialConfig(layers=layers, embedding=400), (30,), start=seeded(0))
    h = tower(torch.randn(4000, 30, generator=torch.Generator().manual_seed(0))).detach()
    assert (h**2).mean().item() == pytest.approx(1 / 3, rel=0.35 if layers > 1 else 0.05)


def test_one_layer_begins_as_torch_s_linear_layer_but_for_the_bias() -> None:
    weight = build_model(PolynomialConfig(layers=1, embedding=50), (64,), start=seeded(0)).weight.detach()
    assert not weight[-1].any()
    assert 0.12 < weight[:-1].abs().max().item() <= 0.125


def test_equal_seeds_give_equal_weights() -> None:
    one, two, other = (build_model(PolynomialConfig(), (4, 6), start=seeded(seed)).weight for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)


def test_a_party_steps_on_it_as_autograd_does() -> None:
    tower = Polynomial(4, 2, 3).double()
    torch.nn.init.normal_(tower.weight)
    x, dh = torch.randn(6, 4, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)
    steps = backprop(tower)
    steps.forward(x)
    steps.backward(dh.clone())
    by_hand = torch.cat([x, x * x, torch.ones(6, 1, dtype=torch.float64)], 1).T @ dh
    torch.testing.assert_close(tower.weight.grad, by_hand)


@pytest.mark.parametrize("value", [{"name": "polynomial", "layers": 0}, {"name": "polynomial", "degree": 2}])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        model(value)
