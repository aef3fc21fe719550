import copy
import subprocess
import sys

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from common.models.optimiser import OptimiserConfig, SgdConfig, build_optimiser

parse = TypeAdapter(OptimiserConfig).validate_python

TABLE = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
}


def descend(layer: nn.Linear, optimiser: torch.optim.Optimizer, steps: int = 5) -> torch.Tensor:
    rows = torch.arange(12.0).reshape(4, 3) / 10
    for _ in range(steps):
        optimiser.zero_grad()
        layer(rows).square().mean().backward()
        optimiser.step()
    return layer.weight.detach()


@pytest.mark.parametrize("name", TABLE)
def test_steps_as_torch_does(name: str) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2)
    config = parse({"name": name, "lr": 0.05, "weight_decay": 0.01})
    plain = copy.deepcopy(layer)
    values = config.model_dump(exclude={"name"})
    expected = descend(plain, TABLE[name](plain.parameters(), **values, foreach=False))
    optimiser = build_optimiser(config, layer.parameters())
    assert isinstance(optimiser, TABLE[name])
    torch.testing.assert_close(descend(layer, optimiser), expected)


def test_sgd_is_that_of_the_authors() -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimiser = build_optimiser(parse("sgd"), [weight])
    velocity, value = 0.0, 1.0
    for _ in range(3):
        weight.grad = torch.tensor([0.5])
        optimiser.step()
        velocity = 0.9 * velocity + 0.5 + 1e-3 * value
        value -= 0.1 * velocity
    assert weight.item() == pytest.approx(value, rel=1e-6)


def test_a_name_alone_is_a_short_form() -> None:
    assert parse("sgd") == parse({"name": "sgd"}) == parse({}) == SgdConfig()


@pytest.mark.parametrize(
    "value",
    [
        "sdg",
        {"name": "sgd", "lr": 0},
        {"name": "sgd", "lr": -1},
        {"name": "sgd", "lr": float("inf")},
        {"name": "sgd", "lr": float("nan")},
        {"name": "sgd", "momentum": 1},
        {"name": "sgd", "weight_decay": -1e-3},
        {"name": "sgd", "betas": [0.9, 0.9]},
        {"name": "sgd", "momentum": 0, "nesterov": True},
        {"name": "adam", "betas": [0.9, 1.0]},
    ],
)
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        parse(value)


def test_no_optimiser_imports_the_compiler() -> None:
    code = """
import sys, torch
from common.models.optimiser import SgdConfig, build_optimiser
layer = torch.nn.Linear(2, 2)
optimiser = build_optimiser(SgdConfig(), layer.parameters())
layer(torch.ones(1, 2)).sum().backward()
optimiser.step(); optimiser.zero_grad(); optimiser.load_state_dict(optimiser.state_dict())
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
