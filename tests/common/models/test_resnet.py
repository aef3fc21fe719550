"""Residual networks against the published counts, and against the paper's table written out."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.config.models import ModelConfig, ResnetConfig
from colonnade.common.models.build import build_model, tower
from colonnade.common.models.images import Residual
from tests.support.seeded import seeded

model = TypeAdapter(ModelConfig).validate_python
NAMES = ("resnet18", "resnet50")
DEPTHS = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}
SIZES = st.integers(1, 70)


def hollow(name: str, shape: tuple[int, ...]) -> nn.Module:
    """The tower without memory: it has shapes and no values."""
    with torch.device("meta"):
        return tower(model({"name": name, "embedding": 10}), shape)


@pytest.mark.parametrize(
    ("name", "shape", "published", "scores"),
    [
        # The counts of torchvision's models of the ImageNet sizes, whose last layer has 1000 scores.
        ("resnet18", (3, 224, 224), 11_689_512, 1000 * (512 + 1)),
        ("resnet50", (3, 224, 224), 25_557_032, 1000 * (2048 + 1)),
        # Those of the usual CIFAR-10 variants, with 10 scores.
        ("resnet18", (3, 32, 32), 11_173_962, 10 * (512 + 1)),
        ("resnet50", (3, 32, 32), 23_520_842, 10 * (2048 + 1)),
        # In grey the first convolution has two planes less.
        ("resnet18", (28, 28), 11_173_962 - 2 * 9 * 64, 10 * (512 + 1)),
    ],
)
def test_it_has_as_many_parameters_as_were_published(
    name: str, shape: tuple[int, ...], published: int, scores: int
) -> None:
    tower = hollow(name, shape)
    last = next(layer for layer in reversed(list(tower)) if isinstance(layer, nn.Linear))
    count = sum(p.numel() for p in tower.parameters()) - sum(p.numel() for p in last.parameters())
    assert count == published - scores


@pytest.mark.parametrize(("side", "first"), [(32, 32), (64, 64), (65, 17), (224, 56)])
@pytest.mark.parametrize(("name", "growth"), [("resnet18", 1), ("resnet50", 4)])
def test_every_stage_has_twice_the_maps_of_half_the_size(name: str, growth: int, side: int, first: int) -> None:
    tower, maps = hollow(name, (3, side, side)), torch.empty(2, 3, side, side, device="meta")
    shapes = []
    for layer in tower:
        maps = layer(maps)
        if isinstance(layer, Residual):
            shapes.append(tuple(maps.shape[1:]))
    sides = [-(-first // 2**stage) for stage in range(4)]
    stages = [(growth * 64 * 2**stage, sides[stage], sides[stage]) for stage in range(4)]
    assert shapes == [shape for shape, depth in zip(stages, DEPTHS[name], strict=True) for _ in range(depth)]


def normed(weights: Iterator[Tensor], x: Tensor, stride: int = 1) -> Tensor:
    """A convolution and the batch norm of training, with the next three parameters."""
    kernel, scale, shift = next(weights), next(weights), next(weights)
    x = functional.conv2d(x, kernel, stride=stride, padding=kernel.shape[-1] // 2)
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), keepdim=True, correction=0)
    return (x - mean) / (variance + 1e-5).sqrt() * scale[:, None, None] + shift[:, None, None]


def by_hand(name: str, parameters: list[Tensor], rows: Tensor) -> Tensor:
    """Table 1 of He et al., column 18 or 50, with the stem for CIFAR-10."""
    weights = iter(parameters)
    x = normed(weights, rows).relu()
    for stage, depth in enumerate(DEPTHS[name]):
        for place in range(depth):
            stride = 2 if stage and not place else 1
            strides = (stride, 1) if name == "resnet18" else (1, stride, 1)
            body = x
            for number, step in enumerate(strides):
                body = normed(weights, body.relu() if number else body, step)
            x = (body + (x if x.shape == body.shape else normed(weights, x, stride))).relu()
    return (x.mean((2, 3)) @ next(weights).T + next(weights)).relu()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_the_papers_table(name: str) -> None:
    tower = build_model(ResnetConfig(name=name, embedding=7), (3, 9, 6), start=seeded(0)).double()
    draws = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in tower.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.uniform_(0.5, 1.5, generator=draws)
                layer.bias.uniform_(-0.5, 0.5, generator=draws)
        rows = torch.randn(2, 3, 9, 6, generator=draws, dtype=torch.float64)
        embedding = tower(rows)
        torch.testing.assert_close(embedding, by_hand(name, list(tower.parameters()), rows))
    assert embedding.shape == (2, 7) and bool(embedding.any())


@settings(max_examples=6)
@given(st.sampled_from(NAMES), st.tuples(SIZES, SIZES) | st.tuples(st.integers(1, 4), SIZES, SIZES), st.integers(1, 3))
def test_it_takes_images_of_any_size(name: str, shape: tuple[int, ...], rows: int) -> None:
    assert hollow(name, shape)(torch.empty(rows, *shape, device="meta")).shape == (rows, 10)


def test_a_single_row_goes_as_in_evaluation_and_changes_no_statistics() -> None:
    tower = build_model(ResnetConfig(), (2, 3), start=seeded(0))
    tower(torch.randn(6, 2, 3) + 1)
    before = {key: value.clone() for key, value in tower.state_dict().items()}
    row = torch.randn(1, 2, 3)
    alone = tower(row)
    assert all(torch.equal(before[key], value) for key, value in tower.state_dict().items())
    assert torch.equal(alone, tower.eval()(row))


def test_equal_seeds_give_equal_weights() -> None:
    states = [build_model(ResnetConfig(), (4, 6), start=seeded(seed)).state_dict() for seed in (1, 1, 2)]
    first, second, other = states
    assert all(torch.equal(first[key], second[key]) for key in first)
    drawn = [key for key, value in first.items() if value.ndim > 1]
    assert len(drawn) == 21 and not any(torch.equal(first[key], other[key]) for key in drawn)


def test_the_names_are_two_models() -> None:
    assert [model(name) for name in NAMES] == [ResnetConfig(name=name) for name in NAMES]
    assert model({"name": "resnet50", "embedding": 9}).embedding == 9


@pytest.mark.parametrize("value", ["resnet34", {"name": "resnet18", "embedding": 0}, {"name": "resnet50", "depth": 3}])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        model(value)
