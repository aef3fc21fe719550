"""LeNet against the published sizes, and by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from torch.nn import functional

from colonnade.common.config.models import LenetConfig, ModelConfig
from colonnade.common.models.build import build_model
from colonnade.common.models.images import averages
from tests.support.seeded import seeded

model = TypeAdapter(ModelConfig).validate_python


def test_ten_outputs_make_the_61706_parameters_of_lenet_5() -> None:
    """Counted by the layers of LeCun et al. 1998 with all maps connected: 156, 2416, 48120, 10164 and 850."""
    tower = build_model(model({"name": "lenet", "embedding": 10}), (28, 28), start=seeded(0))
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in tower]
    assert [size for size in sizes if size] == [156, 2416, 48120, 10164, 850]
    assert sum(sizes) == 61706


@pytest.mark.parametrize("channels", [1, 3])
def test_it_matches_the_definition_if_five_divides_the_sides(channels: int) -> None:
    tower = build_model(LenetConfig(), (channels, 10, 15), start=seeded(0))
    c1, b1, c3, b3, c5, b5, f6, b6, last, bias = tower.parameters()
    rows = torch.randn(4, channels, 10, 15)
    maps = functional.conv2d(rows, c1, b1, padding=2).relu()
    maps = functional.conv2d(maps, c3, b3, padding=2).relu()
    maps = maps.unflatten(3, (5, 3)).unflatten(2, (5, 2)).mean((3, 5))  # (4, 16, 5, 5)
    units = functional.conv2d(maps, c5.unflatten(1, (16, 5, 5)), b5).flatten(1).relu()
    torch.testing.assert_close(tower(rows), ((units @ f6.T + b6).relu() @ last.T + bias).relu())


@given(st.integers(1, 14), st.integers(1, 14), st.integers(1, 6))
def test_averages_are_those_of_torch_and_so_are_their_gradients(height: int, width: int, size: int) -> None:
    maps = torch.randn(2, 3, height, width, requires_grad=True)
    expected = functional.adaptive_avg_pool2d(maps, size)
    ours = averages(height, width, size)(maps)
    torch.testing.assert_close(ours, expected)
    weights = torch.randn_like(expected)
    gradients = [torch.autograd.grad((each * weights).sum(), maps)[0] for each in (ours, expected)]
    torch.testing.assert_close(*gradients)


def test_averages_of_large_maps_need_no_large_matrix() -> None:
    assert not list(averages(512, 512, 5).buffers())


def test_a_grey_row_is_a_row_of_one_channel() -> None:
    grey, colour = (build_model(LenetConfig(), shape, start=seeded(3)) for shape in ((6, 7), (1, 6, 7)))
    rows = torch.randn(2, 6, 7)
    assert torch.equal(grey(rows), colour(rows[:, None]))


@given(
    st.tuples(st.integers(1, 14), st.integers(1, 14))
    | st.tuples(st.integers(1, 3), st.integers(1, 14), st.integers(1, 14)),
    st.integers(1, 3),
)
def test_it_takes_images_of_any_size(shape: tuple[int, ...], rows: int) -> None:
    tower = build_model(LenetConfig(embedding=5), shape, start=seeded(0))
    embedding = tower(torch.randn(rows, *shape))
    assert embedding.shape == (rows, 5) and bool((embedding >= 0).all()) and bool(embedding.isfinite().all())


@pytest.mark.parametrize("value", [{"name": "lenet", "embedding": 0}, {"name": "lenet", "channels": [6, 16]}])
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        model(value)
