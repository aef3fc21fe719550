"""Regions: the largest distance of two rows in one, and the projection of a row into it."""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from colonnade.common.config.privacy import RegionName
from colonnade.common.privacy.shaped import bring_into, radius

REGIONS = get_args(RegionName)
rows = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), min_size=2, max_size=6)


@pytest.mark.parametrize("region", REGIONS)
@given(values=rows, t=st.floats(1e-3, 1e3))
@example(values=[[0.0] * 4, [0.0, 0.0, 0.0, 8.5e-13]], t=1.0)  # too short for a direction, and not by much
def test_no_two_rows_are_further_apart_than_the_diameter(region: RegionName, values: list, t: float) -> None:
    given_rows = torch.tensor(values, dtype=torch.float64)
    inside = bring_into(region, t, given_rows)
    assert torch.cdist(inside, inside).max() <= 2 * t * (1 + 1e-6)  # cdist itself rounds
    assert torch.linalg.vector_norm(inside, dim=1).max() <= radius(region, t) * (1 + 1e-12)
    kept = torch.relu(given_rows) if region.startswith("positive") else given_rows
    least = 0.0 if region.endswith("ball") else 1e-12  # shorter vectors have no direction, and are not in the sphere
    inside = inside[torch.linalg.vector_norm(kept, dim=1) >= least]
    assert torch.allclose(bring_into(region, t, inside), inside, rtol=1e-12, atol=0)


@pytest.mark.parametrize("region", REGIONS)
def test_the_diameter_is_reached(region: RegionName) -> None:
    """The sensitivity is attained: less noise would be too little."""
    far = torch.eye(4)[:2] if region.startswith("positive") else torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    one, other = bring_into(region, 0.7, 1e3 * far.double())
    assert float((one - other).norm()) == pytest.approx(1.4)


@pytest.mark.parametrize("region", REGIONS)
def test_gradients_are_those_of_the_formula(region: RegionName) -> None:
    torch.manual_seed(0)
    h = torch.rand(5, 3, dtype=torch.float64) + 0.1  # off the kinks
    assert torch.autograd.gradcheck(lambda x: bring_into(region, 0.8, x), (h.requires_grad_(),))


def test_rows_without_a_direction_stay_at_the_origin() -> None:
    nothing = torch.tensor([[0.0, 0.0], [-1.0, -2.0]], requires_grad=True)
    inside = bring_into("positive_sphere", 1.0, nothing)
    inside.sum().backward()
    assert torch.equal(inside, torch.zeros(2, 2)) and nothing.grad.isfinite().all()


def test_lengths() -> None:
    h = torch.tensor([[3.0, 4.0], [0.3, 0.4], [-3.0, 4.0]])
    lengths = {name: bring_into(name, 1.0, h).norm(dim=1).tolist() for name in REGIONS}
    root = math.sqrt(2)
    assert lengths["ball"] == pytest.approx([1, 0.5, 1]) and lengths["sphere"] == pytest.approx([1, 1, 1])
    assert lengths["positive_ball"] == pytest.approx([root, 0.5, root])
    assert lengths["positive_sphere"] == pytest.approx([root] * 3)
