"""Inversion by the party's own model: exact where it can be, better than the mean on a run, and stopped by noise."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from colonnade.client.training.local import Local
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.features import Prior, explain, invert_knowing, likeliest
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow


def test_likely_rows_have_the_variances_of_the_known_ones() -> None:
    known = torch.randn(4000, 3, generator=generator("known")) * torch.tensor([1.0, 2.0, 0.0]) + 5
    prior = Prior.of(known)
    assert len(prior.basis) == 2
    torch.testing.assert_close(prior.basis.T @ prior.basis, torch.cov(known.T), atol=1e-3, rtol=0)
    nothing = likeliest(prior, lambda rows: 0 * rows.sum(1), 4, 1.0, 10)
    torch.testing.assert_close(nothing, known.mean(0).expand(4, 3))


def test_a_model_that_loses_nothing_is_inverted() -> None:
    draws = generator("rows")
    mix = torch.randn(8, 8, generator=draws)
    x = torch.randn(300, 8, generator=draws) @ mix
    layer = nn.Linear(8, 16)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(16, 8, generator=draws))
    kinds = torch.nn.functional.leaky_relu(layer(x).detach(), 0.5).split([100, 200])
    made, weight = explain(Local(nn.Sequential(layer, nn.LeakyReLU(0.5))), x[:100], *kinds)
    assert weight < 1 and (made - x[100:]).square().mean() < 0.05 * x.var()


def test_embeddings_of_the_digits_are_inverted_and_noised_ones_are_not(tmp_path: Path) -> None:
    noise = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 2, delta: 1e-4}"
    clear, noised = (
        invert_knowing(captured(tmp_path / str(len(sets)), SPLIT, "federation.epochs=1", *sets), "party1", 0.2, 0)
        for sets in ((), (noise,))
    )
    assert clear.mse < 0.75 * clear.floor and clear.width == 10
    assert noised.mse > 0.95 * noised.floor


def test_a_server_that_is_shown_sums_alone_is_refused(tmp_path: Path) -> None:
    sets = ("federation.epochs=1", "federation.blinding={least: 2}", "every_party.policy={min_parties: 2}")
    run = captured(tmp_path, {"name": "fdml", "embedding": 10, "aggregate": "blinded"}, *sets)
    with pytest.raises(InputError, match="fdml: the server is shown no party's part"):
        invert_knowing(run, "party1", 0.2, 0)
