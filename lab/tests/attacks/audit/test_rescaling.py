"""Theorem 3.6 of VFL-AFE under audit: it fails where rows crowd together, and the clip alone never does."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.data.rows import generator
from colonnade.common.privacy.accounting.calibration import gaussian_epsilon
from colonnade.common.privacy.noise import seeded_normals
from colonnade.common.privacy.regions import bring_into
from colonnade_lab.attacks.audit.canaries import audit
from colonnade_lab.attacks.audit.mechanisms import Neighbours, exact_epsilon, rescaled

pytestmark = pytest.mark.slow

T, SIGMA, DELTA = 1.0, 2.0, 1e-5
CLAIM = gaussian_epsilon(SIGMA, DELTA)


def crowd(spread: float, other: float = -1.0) -> Neighbours:
    """Rows about one point, and a neighbour at the other end of the ball."""
    rows = spread * torch.randn(100, 8, generator=generator("crowd"))
    rows[:, 0] += 0.5
    return Neighbours(rows, torch.tensor([other, *[0.0] * 7]), "a crowd")


@pytest.mark.parametrize("shrink", [True, False])
def test_one_row_moves_a_crowd_and_the_audit_refutes_the_claim(shrink: bool) -> None:
    made = rescaled(crowd(0.05), T, SIGMA, DELTA, shrink=shrink, normals=seeded_normals(generator("noise")))
    found = audit(made, 1000, 0, 0.999)
    assert found.claimed == CLAIM and found.refuted and found.least > 1.4 * CLAIM
    assert exact_epsilon(crowd(0.05), T, SIGMA, DELTA, shrink=shrink) > 10 * CLAIM


def test_rows_that_fill_the_ball_keep_the_claim() -> None:
    rows = torch.randn(100, 8, generator=generator("ball"))
    pair = Neighbours(rows, rows.flip(0)[0], "rows of the data")
    assert exact_epsilon(pair, T, SIGMA, DELTA) < CLAIM
    found = audit(rescaled(pair, T, SIGMA, DELTA, normals=seeded_normals(generator("noise"))), 1000, 0, 0.999)
    assert not found.refuted


def test_a_neighbour_that_is_the_same_costs_nothing() -> None:
    pair = crowd(0.1)
    assert exact_epsilon(Neighbours(pair.rows, pair.rows[0], "same"), T, SIGMA, DELTA) == 0


def test_the_clip_alone_keeps_the_claim_on_the_same_rows() -> None:
    pair = crowd(0.05)
    moved = (bring_into("ball", T, pair.rows[:1]) - bring_into("ball", T, pair.other[None])).norm()
    assert gaussian_epsilon(2 * SIGMA * T / float(moved), DELTA) < CLAIM


def test_epsilon_is_that_of_the_released_batches_by_hand() -> None:
    """Two rows: mu + 3 sd is their distance, since its deviation is 0, so that they end 2t apart whatever they were."""
    pair = Neighbours(torch.tensor([[0.1, 0.0], [0.0, 0.0]]), torch.tensor([0.0, 0.4]), "two rows")
    apart = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).double()
    mu = float((apart[0] - apart[1]).norm()) / (2 * SIGMA * T)
    assert exact_epsilon(pair, T, SIGMA, DELTA) == pytest.approx(gaussian_epsilon(1 / mu, DELTA / 0.9987), rel=1e-4)
