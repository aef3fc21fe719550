"""Response noise: sensitivity to a label, distribution, and cost."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from colonnade.common.errors import ConfigError
from colonnade.common.models.backprop import row_gradients
from colonnade.common.parsing.file import parse
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.privacy.noise import secure_normals
from colonnade.common.privacy.response_noise import RowNoise, clip_rows
from tests.common.config.test_config import tree
from tests.support.oracles import exact_epsilon

ROWS, WIDTH, CLASSES = 6, 5, 4
STILL = 1e-6  # a noise multiplier with a grid finer than the tolerance


def silent(shape: torch.Size) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def shares(labels: Tensor, scale: float) -> tuple[Tensor, list[Tensor]]:
    """Every row's gradients at its embedding and at a head of two layers, as large as `scale` makes them."""
    torch.manual_seed(0)
    head = nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, CLASSES))
    h = scale * torch.randn(ROWS, WIDTH)

    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(head, parameters, (row[None],)), label[None])

    _, at_parameters, at_h = row_gradients(loss, dict(head.named_parameters()), h, labels)
    return at_h, list(at_parameters.values())


labels_of = st.lists(st.integers(0, CLASSES - 1), min_size=ROWS, max_size=ROWS).map(torch.tensor)


@given(labels_of, st.integers(0, ROWS - 1), st.integers(0, CLASSES - 1), st.floats(1e-3, 3), st.floats(0.1, 30))
def test_another_label_moves_a_response_and_the_step_by_at_most_twice_the_clip(
    labels: Tensor, row: int, other: int, clip: float, scale: float
) -> None:
    changed = labels.clone()
    changed[row] = other
    noise = RowNoise(clip, STILL, silent)
    (one, at_head), (two, at_head_too) = shares(labels, scale), shares(changed, scale)
    apart = (noise.rows(one) - noise.rows(two)).double()
    assert apart.norm() <= 2 * clip * (1 + 1e-5)
    assert not apart[[i for i in range(ROWS) if i != row]].any()  # no other row depends on it
    for ours, theirs in (([one], [two]), (at_head, at_head_too)):
        pairs = zip(noise.sums(ours), noise.sums(theirs), strict=True)
        assert math.sqrt(sum((a - b).double().square().sum() for a, b in pairs)) <= 2 * clip * (1 + 1e-5)


def test_twice_the_clip_is_reached() -> None:
    """Hence `replace` is no overstatement: two labels may pull in opposite directions."""
    noise = RowNoise(0.5, STILL, silent)
    one, two = (noise.rows(sign * torch.full((1, 9), 7.0)) for sign in (1, -1))
    assert (one - two).norm() == pytest.approx(1.0, rel=1e-5)


@given(st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4), st.floats(1e-3, 1e3))
def test_rows_are_clipped_each_over_all_tensors_together(values: list[float], clip: float) -> None:
    first, second = torch.tensor(values, dtype=torch.float64).reshape(2, 2), torch.ones(2, 3, 2)
    norms = torch.cat([first, second.flatten(1)], dim=1).norm(dim=1)
    clipped = clip_rows([first, second], clip)
    for row in range(2):
        factor = min(1.0, clip / float(norms[row]))
        assert torch.allclose(clipped[0][row], first[row] * factor)
        assert torch.allclose(clipped[1][row], second[row].double() * factor)


def test_values_that_are_not_finite_count_as_zero() -> None:
    """No noise would hide such a value."""
    (clipped,) = clip_rows([torch.tensor([[math.inf, 3.0], [math.nan, -4.0]])], 1.0)
    assert torch.equal(clipped, torch.tensor([[0.0, 1.0], [0.0, -1.0]], dtype=torch.float64))


def test_the_noise_is_gaussian_with_the_configured_deviation_in_rows_and_in_sums() -> None:
    noise = RowNoise(0.5, 3.0, secure_normals)
    rows = noise.rows(torch.zeros(1000, 400)).double()
    (sums,) = noise.sums([torch.zeros(2, 400_000)])
    for values in (rows.flatten(), sums.double()):
        assert values.std().item() == pytest.approx(1.5, rel=0.01)
        assert abs(values.mean()) < 5 * 1.5 / math.sqrt(values.numel())
        within = (values.abs() < 1.5).double().mean().item()
        assert within == pytest.approx(math.erf(1 / math.sqrt(2)), abs=0.005)


def test_low_bits_reveal_nothing() -> None:
    noise, grid = RowNoise(1.0, 2.0, secure_normals), 2.0**-9  # the power of two at or below 2 / 1024
    for values in (noise.rows(torch.rand(50, 3)), noise.sums([torch.rand(50, 300)])[0]):
        assert torch.equal(values, torch.round(values / grid) * grid) and values.dtype == torch.float32


@pytest.mark.parametrize(("releases", "sigma"), [(60, 5.0), (60, 40.0), (1, 2.0)])
def test_the_cost_of_releases_equals_another_librarys_result(releases: int, sigma: float) -> None:
    theirs = exact_epsilon([(sigma / 2, releases)], 1e-6)  # sensitivity 2C under noise of sigma C
    assert epsilon(releases, sigma, 1e-6, "replace") == pytest.approx(theirs, rel=0.003)


VAFL = {"federation__protocol": {"name": "vafl"}}
GIVEN = {"clip": 0.1, "head_clip": 1, "noise_multiplier": 5}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"answers": {**GIVEN, "clip": 0}}, r"server\.privacy\.answers\.clip = 0: expected at least 1e-06"),
        ({"answers": {"clip": 1, "head_clip": 1}}, r"server\.privacy\.answers\.noise_multiplier: missing"),
        ({"answers": {**GIVEN, "delta": 1}}, r"server\.privacy\.answers\.delta = 1"),
        ({"answers": {**GIVEN, "seed": 3}}, r"server\.privacy\.answers\.seed: unknown key"),
        ({"answers": GIVEN, "labels": {"epsilon": 1}}, r"server\.privacy: both labels and answers are given"),
    ],
)
def test_wrong_settings_are_refused_with_the_reason(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(tree(**VAFL, server__privacy=values))


def test_a_protocol_that_sends_labels_past_the_noise_refuses_it_and_names_those_that_can() -> None:
    with pytest.raises(ConfigError, match=r"^server\.privacy\.answers: in vimadmm what goes back") as refused:
        parse(tree(server__privacy={"answers": GIVEN}))
    assert "vafl" in str(refused.value.hint)
    assert parse(tree(**VAFL, server__privacy={"answers": GIVEN})).server.privacy.answers.delta == 1e-6
