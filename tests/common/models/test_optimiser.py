import copy
from collections.abc import Callable

import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from torch import nn

from colonnade.common.config.optimisers import OptimiserConfig, SgdConfig
from colonnade.common.models.optimiser import build_optimiser

parse = TypeAdapter(OptimiserConfig).validate_python

TABLE = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adadelta": torch.optim.Adadelta,
}
VARIANTS = [
    *({"name": name} for name in TABLE),
    {"name": "sgd", "momentum": 0},
    {"name": "sgd", "nesterov": True},
    {"name": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.5},
    {"name": "rmsprop", "momentum": 0.9, "centered": True},
]


def descend(layer: nn.Linear, optimiser: torch.optim.Optimizer, steps: int = 5) -> torch.Tensor:
    rows = torch.arange(12.0).reshape(4, 3) / 10
    for _ in range(steps):
        optimiser.zero_grad()
        layer(rows).square().mean().backward()
        optimiser.step()
    return layer.weight.detach()


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_steps_as_torch_does(variant: dict[str, object]) -> None:
    torch.manual_seed(0)
    layer, name = nn.Linear(3, 2), str(variant["name"])
    config = parse({**variant, "lr": 0.05, "weight_decay": 0.01})
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


def by_nesterov(value: float, slope: float) -> float:
    velocity = 0.0
    for _ in range(3):
        velocity = 0.5 * velocity + slope
        value -= 0.1 * (slope + 0.5 * velocity)
    return value


def by_adagrad(value: float, slope: float) -> float:
    """Duchi et al. 2011."""
    squares = 2.0
    for step in range(3):
        squares += slope**2
        value -= 0.1 / (1 + 0.5 * step) * slope / squares**0.5
    return value


def by_centered_rmsprop(value: float, slope: float) -> float:
    """Graves 2013, Equations 38 to 42."""
    squares = mean = velocity = 0.0
    for _ in range(3):
        squares = 0.8 * squares + 0.2 * slope**2
        mean = 0.8 * mean + 0.2 * slope
        velocity = 0.5 * velocity + slope / (squares - mean**2) ** 0.5
        value -= 0.1 * velocity
    return value


def by_adadelta(value: float, slope: float) -> float:
    """Zeiler 2012, Algorithm 1."""
    squares = moves = 0.0
    for _ in range(3):
        squares = 0.8 * squares + 0.2 * slope**2
        move = -(((moves + 1e-2) / (squares + 1e-2)) ** 0.5) * slope
        moves = 0.8 * moves + 0.2 * move**2
        value += 0.1 * move
    return value


@pytest.mark.parametrize(
    ("config", "by_hand"),
    [
        ({"momentum": 0.5, "nesterov": True, "weight_decay": 0}, by_nesterov),
        ({"name": "adagrad", "lr_decay": 0.5, "initial_accumulator_value": 2.0}, by_adagrad),
        ({"name": "rmsprop", "alpha": 0.8, "momentum": 0.5, "centered": True}, by_centered_rmsprop),
        ({"name": "adadelta", "rho": 0.8, "eps": 1e-2}, by_adadelta),
    ],
)
def test_every_parameter_is_defined_as_in_its_paper(
    config: dict[str, object], by_hand: Callable[[float, float], float]
) -> None:
    weight = nn.Parameter(torch.tensor([1.0]))
    optimiser = build_optimiser(parse({**config, "lr": 0.1}), [weight])
    for _ in range(3):
        weight.grad = torch.tensor([0.5])
        optimiser.step()
    assert weight.item() == pytest.approx(by_hand(1.0, 0.5), rel=1e-5)


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
        {"name": "adagrad", "lr_decay": -0.1},
        {"name": "adagrad", "initial_accumulator_value": -1},
        {"name": "rmsprop", "centered": "perhaps"},
        {"name": "adadelta", "rho": 1},
        {"name": "adadelta", "eps": 0},
        {"name": "adadelta", "momentum": 0.9},
    ],
)
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        parse(value)
