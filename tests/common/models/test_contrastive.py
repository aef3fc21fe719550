"""The loss that pushes clusters apart against its printed double sum, and its gradient against autograd's."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.models.clusters import contrast

seeds = st.integers(0, 10**6)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def printed(h: Tensor, ids: list[int], confident: list[bool], beta: float) -> Tensor:
    """Eq. 8 with a minus, pair by pair."""
    rows = [row for row, sure in enumerate(confident) if sure]
    pairs = [(h[j] - h[k]).square().sum().sqrt() for j in rows for k in rows if ids[j] != ids[k]]
    return -beta / len(rows) ** 2 * torch.stack(pairs).sum() if pairs else 0 * h.sum()


@given(st.integers(1, 14), st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.0, 1e4]), st.floats(0.1, 5), seeds)
def test_value_and_gradient_are_those_of_the_double_sum(
    rows: int, width: int, clusters: int, shift: float, beta: float, seed: int
) -> None:
    h = (normal(rows, width, seed=seed) + shift).requires_grad_()
    ids, confident = torch.arange(rows) % clusters, normal(rows, seed=seed + 1) > -0.5
    expected = printed(h, ids.tolist(), confident.tolist(), beta)
    value, gradient = contrast(h, ids, confident, beta)
    torch.testing.assert_close(value, expected.detach())
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, h)[0], atol=1e-8, rtol=1e-6)
    assert not gradient[~confident].any() and not gradient.requires_grad


@given(seeds)
def test_single_precision_is_restored_exactly(seed: int) -> None:
    h, ids, confident = normal(60, 8, seed=seed), torch.arange(60) % 3, torch.arange(60) % 4 > 0
    value, gradient = contrast(h.float(), ids, confident, 0.3)
    exact, slopes = contrast(h, ids, confident, 0.3)
    assert value.dtype == gradient.dtype == torch.float32
    torch.testing.assert_close(value.double(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient.double(), slopes, rtol=1e-4, atol=1e-6)


def test_rows_that_coincide_do_not_push_each_other() -> None:
    h = torch.tensor([[1.0, 2.0], [1.0, 2.0], [4.0, 6.0]])
    value, gradient = contrast(h, torch.tensor([0, 1, 2]), torch.ones(3, dtype=torch.bool), 1.0)
    assert float(value) == pytest.approx(-(5 + 5) * 2 / 9)
    unit = torch.tensor([0.6, 0.8]) * 2 / 9  # from the third row, 5 away, over n^2
    torch.testing.assert_close(gradient, torch.stack((unit, unit, -2 * unit)))


@pytest.mark.parametrize(
    ("ids", "confident"),
    [([0, 1, 2], [False, False, False]), ([0, 1, 2], [False, True, False]), ([4, 4, 1], [True, True, False])],
)
def test_less_than_two_clusters_have_nothing_to_push(ids: list[int], confident: list[bool]) -> None:
    value, gradient = contrast(normal(3, 2), torch.tensor(ids), torch.tensor(confident), 1.0)
    assert float(value) == 0 and torch.equal(gradient, torch.zeros(3, 2).double())


def test_of_no_rows_there_is_nothing() -> None:
    value, gradient = contrast(normal(0, 2), torch.zeros(0).long(), torch.zeros(0).bool(), 1.0)
    assert float(value) == 0 and gradient.shape == (0, 2)


def test_descent_separates_clusters_by_more_than_it_widens_them() -> None:
    ids = torch.arange(60) % 3
    h = normal(60, 5) + 0.5 * torch.eye(3, 5, dtype=torch.float64)[ids]
    ends = h.clone()
    for _ in range(50):
        ends -= 20 * contrast(ends, ids, torch.ones(60, dtype=torch.bool), 1.0)[1]

    def separation(rows: Tensor) -> float:
        centres = torch.stack([rows[ids == cluster].mean(0) for cluster in range(3)])
        return float(torch.pdist(centres).min() / (rows - centres[ids]).norm(dim=1).mean())

    assert separation(ends) > 2 * separation(h)
