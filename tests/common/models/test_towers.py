"""Towers and heads: their outputs, equal weights for equal seeds, shapes that fit."""

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch import nn

from colonnade.common.config.models import CnnConfig, HeadConfig, LinearConfig, MlpConfig, MlpHeadConfig, ModelConfig
from colonnade.common.errors import ConfigError
from colonnade.common.models.backprop import backprop
from colonnade.common.models.build import InBfloat16, build_head, build_model, output_width
from tests.support.federation import config, federate, parameters
from tests.support.seeded import seeded

PRECISIONS: tuple[dict[str, str], ...] = ({}, {"precision": "bfloat16"})

model = TypeAdapter(ModelConfig).validate_python
head = TypeAdapter(HeadConfig).validate_python


def test_the_tower_of_mnist_is_that_of_the_authors() -> None:
    tower = build_model(model("mlp"), (2, 28), start=seeded(0))
    sizes = [tuple(parameter.shape) for parameter in tower.parameters()]
    assert sizes == [(120, 56), (120,), (60, 120), (60,)]
    rows = torch.randn(5, 2, 28)
    first, bias, second, last = tower.parameters()
    by_hand = torch.relu(torch.relu(rows.flatten(1) @ first.T + bias) @ second.T + last)
    torch.testing.assert_close(tower(rows), by_hand)


def test_the_first_weights_are_torch_s_own() -> None:
    torch.manual_seed(3)
    expected = nn.Linear(4, 120).weight
    assert torch.equal(next(build_model(MlpConfig(), (4,), start=seeded(3)).parameters()), expected)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet", "linear"])
def test_equal_seeds_give_equal_weights(name: str) -> None:
    first, second, third = (build_model(model(name), (4, 6), start=seeded(seed)).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any(torch.equal(first[key], third[key]) for key in first)


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    build_model(model("cnn"), (4, 6), start=seeded(1))
    build_head(head("mlp"), 60, 10, start=seeded(1))
    assert torch.equal(torch.get_rng_state(), before)


@given(
    st.tuples(st.integers(1, 12), st.integers(1, 12))
    | st.tuples(st.integers(1, 3), st.integers(1, 12), st.integers(1, 12)),
    st.integers(1, 4),
)
def test_the_cnn_takes_images_of_any_size(shape: tuple[int, ...], rows: int) -> None:
    tower = build_model(CnnConfig(channels=(2, 3), embedding=5), shape, start=seeded(0))
    embedding = tower(torch.randn(rows, *shape))
    assert embedding.shape == (rows, 5) and bool((embedding >= 0).all())


@pytest.mark.parametrize("name", ["cnn", "lenet"])
def test_a_tower_sees_where_a_pixel_is(name: str) -> None:
    tower = build_model(model(name), (8, 8), start=seeded(0))
    images = torch.zeros(2, 8, 8)
    images[0, 1, 1] = images[1, 6, 6] = 1
    assert not torch.equal(*tower(images))


@pytest.mark.parametrize("name", ["cnn", "lenet", "resnet18", "resnet50"])
@pytest.mark.parametrize("shape", [(30,), (1, 3, 4, 5), (0, 8), (3, 8, 0)])
def test_a_tower_for_images_refuses_other_rows(name: str, shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' takes images, but .* {re.escape(str(shape))}") as caught:
        build_model(model(name), shape, start=seeded(0))
    assert "mlp" in caught.value.hint


def test_the_linear_tower() -> None:
    rows = torch.randn(9, 3, 4)
    bare = build_model(LinearConfig(embedding=5, activation="none"), (3, 4), start=seeded(0))
    weight, bias = bare.parameters()
    torch.testing.assert_close(bare(rows), rows.flatten(1) @ weight.T + bias)
    rectified = build_model(LinearConfig(embedding=5), (3, 4), start=seeded(0))
    torch.testing.assert_close(rectified(rows), bare(rows).relu())


def test_heads() -> None:
    linear = build_head(head("linear"), 60, 10, start=seeded(0))
    assert [tuple(parameter.shape) for parameter in linear.parameters()] == [(10, 60)]
    assert len(list(build_head(head({"name": "linear", "bias": True}), 60, 10, start=seeded(0)).parameters())) == 2
    deep = build_head(MlpHeadConfig(hidden=7, layers=3), 60, 10, start=seeded(0))
    shapes = [tuple(parameter.shape) for parameter in deep.parameters() if parameter.ndim == 2]
    assert shapes == [(7, 60), (7, 7), (10, 7)]


def test_the_mlp_head_by_hand() -> None:
    deep = build_head(MlpHeadConfig(hidden=7), 6, 2, start=seeded(0)).eval()
    first, bias, second, last = deep.parameters()
    rows = torch.randn(9, 6)
    torch.testing.assert_close(deep(rows), torch.relu(rows @ first.T + bias) @ second.T + last)


def test_the_normed_head_by_hand() -> None:
    """In training every hidden value of a batch has mean 0 and deviation 1, before the second layer and the last."""
    normed = build_head(head({"name": "normed", "hidden": 7}), 6, 2, start=seeded(0))
    rows = torch.randn(50, 6)
    first, second, last = (layer for layer in normed.modules() if isinstance(layer, nn.Linear))

    def standard(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(0)) / (x.var(0, correction=0) + 1e-5).sqrt()

    hidden = standard(torch.relu(standard(rows @ first.weight.T + first.bias) @ second.weight.T + second.bias))
    torch.testing.assert_close(normed(rows), hidden @ last.weight.T + last.bias, atol=1e-5, rtol=1e-4)
    sizes = {name: tuple(p.shape) for name, p in last.named_parameters()}
    assert sorted(sizes.values()) == [(2,), (2, 1), (2, 7)]  # bias, lengths, directions


def test_the_normed_head_takes_a_single_row_as_in_evaluation() -> None:
    normed = build_head(head({"name": "normed", "hidden": 7}), 6, 2, start=seeded(0))
    normed(torch.randn(50, 6) + 1)
    row = torch.randn(1, 6)
    alone = normed(row)
    assert torch.equal(alone, normed.eval()(row))


def test_the_mlp_head_drops_a_quarter_in_training_only() -> None:
    rows = torch.ones(4000, 6)
    deep = build_head(MlpHeadConfig(hidden=1), 6, 2, start=seeded(0))
    dropout = next(module for module in deep.modules() if isinstance(module, nn.Dropout))
    dropped = (dropout(rows) == 0).float().mean().item()
    assert dropped == pytest.approx(0.25, abs=0.02)
    deep.eval()
    assert torch.equal(deep(rows)[0], deep(rows)[1])


class Silent(nn.Module):
    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        assert rows.ndim == 4
        return rows


def test_the_width_check_of_a_model_without_a_declared_width() -> None:
    with pytest.raises(ConfigError, match=r"fails on rows of shape \(2, 5\): AssertionError"):
        output_width(Silent(), (5,))


class Wrong(nn.Module):
    def __init__(self, output: object) -> None:
        super().__init__()
        self.output = output

    def forward(self, rows: torch.Tensor) -> object:
        return self.output


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (torch.zeros(2), r"\(2,\)"),
        (torch.zeros(2, 3, 4), r"\(2, 3, 4\)"),
        (torch.zeros(3, 2), r"\(3, 2\)"),
        ([1.0], "list"),
    ],
)
def test_the_width_check_names_both_shapes(output: object, shown: str) -> None:
    with pytest.raises(ConfigError, match=rf"makes {shown} of rows of shape \(2, 5, 6\), expected \(2, width\)"):
        output_width(Wrong(output), (5, 6))


def test_the_width_check_names_the_shape_that_a_model_fails_on() -> None:
    with pytest.raises(ConfigError, match=r"fails on rows of shape \(2, 5\): .*shapes cannot be multiplied") as caught:
        output_width(nn.Linear(4, 3), (5,))
    assert caught.value.hint


def test_the_width_check_leaves_no_trace() -> None:
    tower = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout().eval())
    before = {key: value.clone() for key, value in tower.state_dict().items()}
    assert output_width(tower, (3,)) == 4
    assert [module.training for module in tower] == [True, True, False] and tower.training
    assert all(torch.equal(before[key], value) for key, value in tower.state_dict().items())


@pytest.mark.parametrize(
    "value",
    [
        "mpl",
        {},
        {"name": "mlp", "hiden": 3},
        {"name": "mlp", "hidden": 0},
        {"name": "cnn", "channels": [1]},
        3,
    ],
)
def test_the_model_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        model(value)


@pytest.mark.parametrize("value", ["cnn", {"name": "mlp", "dropout": 1.0}, {"name": "mlp", "layers": 1}])
def test_the_head_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        head(value)


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet", "linear", "resnet18"])
def test_bfloat16_is_autocast_over_the_same_weights(name: str) -> None:
    plain, short = (build_model(model({"name": name, **more}), (1, 8, 8), seeded(1)) for more in PRECISIONS)
    rows, gradient = torch.randn(6, 1, 8, 8, generator=seeded(2)), torch.randn(6, 60, generator=seeded(3))
    plain.eval()
    short.eval()
    with torch.autocast("cpu", torch.bfloat16):
        expected = plain(rows).float()
    expected.backward(gradient)
    towards = backprop(short)
    found = towards.forward(rows)
    towards.backward(gradient.clone())
    assert found.dtype == torch.float32
    assert torch.equal(found, expected) and not torch.equal(found, plain(rows))
    for one, other in zip(plain.parameters(), short.parameters(), strict=True):
        assert torch.equal(one, other) and other.dtype == torch.float32
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad)


def test_bfloat16_trains_and_repeats_itself() -> None:
    sets = ("every_party.model={name: mlp, precision: bfloat16}", "federation.epochs=10")
    one, other = (federate(config({"name": "split", "embedding": 16}, *sets)) for _ in range(2))
    plain = federate(config({"name": "split", "embedding": 16}, "federation.epochs=10"))
    for member, values in parameters(one).items():
        assert torch.equal(values, parameters(other)[member])
    assert one.server.metrics["test_accuracy"] == pytest.approx(plain.server.metrics["test_accuracy"], abs=0.05)
    assert one.server.metrics["test_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("protocol", "sets", "said"),
    [
        ("zoo_vfl", (), "more is done there than a batch's forward and backward pass"),
        ("fdml", (), "take one of split, "),
        ("agg_vfl", (), "more is done there"),
        ("split", ("every_party.workers=2",), "ranks are compared to five digits"),
    ],
)
def test_bfloat16_is_refused_where_small_differences_decide(protocol: str, sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config({"name": protocol}, "every_party.model={name: mlp, precision: bfloat16}", *sets)
    assert "model.precision = bfloat16" in str(refused.value) and said in f"{refused.value} {refused.value.hint}"


def test_an_argument_of_a_users_model_is_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(OWN_PRECISION)
    own = model({"file": "./tower.py:Tower", "precision": "bfloat16"})
    made = build_model(own, (3,), seeded(0), tmp_path)
    assert not isinstance(made, InBfloat16) and made(torch.ones(2, 3)).dtype == torch.float32
    own_section = f"every_party.model={{file: {tmp_path}/tower.py:Tower, precision: bfloat16}}"
    assert config({"name": "fdml"}, own_section).parties["party1"].model == own.model_copy(
        update={"file": f"{tmp_path}/tower.py:Tower"}
    )


OWN_PRECISION = """
import torch


class Tower(torch.nn.Linear):
    def __init__(self, shape, precision):
        assert precision == "bfloat16"
        super().__init__(shape[0], 4)
"""


def test_a_checkpoint_fits_with_both_precisions() -> None:
    plain, short = (build_model(model({"name": "lenet", **more}), (1, 8, 8), seeded(1)) for more in PRECISIONS)
    assert list(plain.state_dict()) == list(short.state_dict())
    program = torch.export.export(short.eval(), (torch.ones(2, 1, 8, 8),))
    assert torch.equal(program.module()(torch.ones(2, 1, 8, 8)), plain.eval()(torch.ones(2, 1, 8, 8)))
