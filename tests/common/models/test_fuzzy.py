"""Fuzzy c-means against scikit-fuzzy from the same start, and points that are hard to cluster."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skfuzzy import cmeans
from torch import Tensor

from colonnade.common.errors import InputError
from colonnade.common.models.clusters import Clusters, fuzzy_c_means

seeds = st.integers(0, 10**6)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heaps(rows: int, width: int, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points about centres that are far apart, and the centre of each."""
    owners = torch.arange(rows) % count
    return 20 * torch.eye(count, width)[owners] + normal(rows, width, seed=seed), owners


def begun(points: Tensor, start: Tensor, fuzziness: float) -> np.ndarray:
    """The memberships (C, n) that centres give."""
    nearness = torch.cdist(start.double(), points.double()) ** (-2 / (fuzziness - 1))
    return (nearness / nearness.sum(0)).numpy()


@given(st.integers(2, 5), st.integers(1, 6), st.integers(1, 12), st.sampled_from([1.5, 2.0, 3.0]), seeds)
def test_it_is_that_of_scikit_fuzzy(clusters: int, width: int, iterations: int, fuzziness: float, seed: int) -> None:
    points, start = normal(40, width, seed=seed), normal(clusters, width, seed=seed + 1)
    found = fuzzy_c_means(points, clusters, fuzziness=fuzziness, tolerance=0, iterations=iterations, start=start)
    centres, memberships, *_ = cmeans(
        points.double().T.numpy(),
        clusters,
        fuzziness,
        error=0,
        maxiter=iterations,
        init=begun(points, start, fuzziness),
    )
    np.testing.assert_allclose(found.memberships.numpy(), memberships.T, atol=1e-5)
    np.testing.assert_allclose(found.centres.numpy(), centres, atol=1e-5)


@pytest.mark.parametrize("count", [2, 10])
def test_heaps_that_are_apart_are_found(count: int) -> None:
    points, owners = heaps(200, 12, count)
    ids, confidences = fuzzy_c_means(points, count).assignments()
    assert ids.dtype == torch.int64 and ids.shape == confidences.shape == (200,)
    pairs = set(zip(ids.tolist(), owners.tolist(), strict=True))
    assert len(pairs) == count  # one cluster a heap, and one heap a cluster
    assert confidences.min() > 0.5


@given(st.integers(-40, 10), seeds)
def test_the_points_scale_does_not_matter(power: int, seed: int) -> None:
    points = normal(50, 4, seed=seed)
    one, other = fuzzy_c_means(points, 3), fuzzy_c_means(2.0**power * points, 3)
    torch.testing.assert_close(other.memberships, one.memberships)
    torch.testing.assert_close(other.centres, 2.0**power * one.centres, atol=0, rtol=1e-5)


@given(st.integers(1, 6), st.integers(0, 20), st.sampled_from([1.1, 2.0, 4.0]), seeds)
def test_memberships_sum_to_one_even_where_points_coincide(
    clusters: int, copies: int, fuzziness: float, seed: int
) -> None:
    points = torch.cat((normal(6, 3, seed=seed), normal(1, 3, seed=seed).expand(copies, 3)))
    found = fuzzy_c_means(points, clusters, fuzziness=fuzziness)
    assert torch.isfinite(found.centres).all()
    torch.testing.assert_close(found.memberships.sum(1), torch.ones(6 + copies))
    assert found.memberships.dtype == torch.float32 and not (found.memberships < 0).any()


@pytest.mark.parametrize("value", [0.0, 1e-6, 3.0])
def test_points_that_are_all_equal_belong_everywhere_alike(value: float) -> None:
    found = fuzzy_c_means(torch.full((8, 3), value), 4)
    torch.testing.assert_close(found.memberships, torch.full((8, 4), 0.25))
    torch.testing.assert_close(found.centres, torch.full((4, 3), value))


def test_a_point_on_a_centre_is_the_centres_own() -> None:
    points = torch.tensor([[0.0, 1.0], [5.0, 5.0], [-5.0, 4.0]])
    found = fuzzy_c_means(points, 3, iterations=0, start=points)
    torch.testing.assert_close(found.memberships, torch.eye(3), atol=1e-6, rtol=0)


def test_from_where_it_ended_it_moves_no_further() -> None:
    points, _ = heaps(100, 5, 4)
    ended = fuzzy_c_means(points, 4, tolerance=1e-9, iterations=500)
    again = fuzzy_c_means(points, 4, iterations=1, start=ended.centres)
    torch.testing.assert_close(again.centres, ended.centres)


def test_it_ends_where_centres_move_no_further_than_the_tolerance() -> None:
    points, _ = heaps(100, 5, 4)
    rough, exact = (fuzzy_c_means(points, 4, tolerance=tolerance, iterations=500) for tolerance in (1e-2, 1e-9))
    cut = fuzzy_c_means(points, 4, tolerance=1e-9, iterations=1)
    distances = [float((found.centres - exact.centres).abs().max()) for found in (exact, rough, cut)]
    assert distances[0] < distances[1] < distances[2]


def test_the_most_likely_cluster_is_assigned() -> None:
    found = Clusters(torch.tensor([[0.2, 0.8], [0.6, 0.4]]), torch.zeros(2, 1))
    ids, confidences = found.assignments()
    assert ids.tolist() == [1, 0] and confidences.tolist() == pytest.approx([0.8, 0.6])


def test_it_follows_no_graph() -> None:
    points = normal(20, 3).requires_grad_()
    found = fuzzy_c_means(points, 2)
    assert not found.memberships.requires_grad and not found.centres.requires_grad


def test_more_clusters_than_points_are_refused() -> None:
    with pytest.raises(InputError, match=r"10 clusters need as many points, got \(9, 2\)") as refused:
        fuzzy_c_means(torch.ones(9, 2), 10)
    assert "more classes than rows in a batch" in refused.value.hint


def test_a_fuzziness_near_one_is_refused() -> None:
    with pytest.raises(InputError, match=r"1\.05 is too close to 1"):
        fuzzy_c_means(torch.ones(9, 2), 2, fuzziness=1.05)
