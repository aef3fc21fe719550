"""Columns from predictions: equations are solved exactly, networks beat regressions, and noise prevents both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from colonnade.client.training.local import Local
from colonnade.common.data.rows import generator
from colonnade.common.errors import InputError
from colonnade_lab.attacks.features import (
    ESA,
    GRN,
    REGRESSION,
    Coalition,
    Prior,
    centred,
    explain,
    generate,
    infer_features,
    invert_knowing,
    likeliest,
    regress,
    solve,
)
from lab.tests.attacks.stage import SPLIT, captured

pytestmark = pytest.mark.slow


class Sum:
    """Parts are logits; the joint model adds them."""

    def logits(self, parts: list[Tensor]) -> Tensor:
        return torch.stack(parts).sum(0)

    def heads(self) -> None:
        return None


def seen(model: nn.Module, width: int, rows: int = 40) -> Coalition:
    """Ten classes; another party's logits are known."""
    draws = generator("seen")
    x, other = torch.randn(rows, width, generator=draws), torch.randn(rows, 10, generator=draws)
    local = Local(model).requires_grad_(requires_grad=False)
    logs = centred(local(x) + other)
    return Coalition(Sum(), local, 0, torch.arange(rows), [torch.zeros(rows, 10), other], logs, x)


def model(*layers: nn.Module) -> nn.Module:
    for number, parameter in enumerate(nn.Sequential(*layers).parameters()):
        with torch.no_grad():
            parameter.copy_(torch.randn(parameter.shape, generator=generator("model", number)))
    return nn.Sequential(*layers)


def test_nine_equations_give_nine_columns_exactly_and_a_part_of_more() -> None:
    exact = seen(model(nn.Linear(9, 10)), 9)
    found = solve(exact, torch.zeros(9))
    torch.testing.assert_close(found, exact.x, atol=1e-3, rtol=0)
    wider = seen(model(nn.Linear(12, 10)), 12)
    found = solve(wider, torch.zeros(12))
    assert found is not None
    torch.testing.assert_close(wider.predict(found, torch.arange(40)), wider.logs, atol=1e-3, rtol=0)
    error = (found - wider.x).square().mean()
    assert 0.05 < error < 0.5  # of twelve directions three stay at their mean: a quarter of the variance


def test_a_model_that_bends_has_no_equations() -> None:
    assert solve(seen(model(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 10)), 6), torch.zeros(6)) is None


def test_a_network_finds_columns_that_a_regression_does_not() -> None:
    bent = seen(model(nn.Linear(4, 20), nn.Tanh(), nn.Linear(20, 10)), 4, rows=600)
    have, rest = torch.arange(60), torch.arange(60, 600)
    errors = [(made - bent.x)[rest].square().mean() for made in (generate(bent, have, 0), regress(bent, have))]
    assert errors[0] < 0.6 * errors[1] and errors[1] < 1


def test_predictions_of_linear_models_give_columns_and_noised_ones_do_not(tmp_path: Path) -> None:
    linear = (
        "every_party.model={name: linear, activation: none}", "federation.epochs=6", "federation.batch=64",
        "federation.rows={train: 128, validation: 0, test: 100}",
    )  # fmt: skip
    noise = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 4, delta: 1e-4}"
    clear, noised = (
        infer_features(captured(tmp_path / str(len(sets)), {"name": "split", "embedding": 10}, *linear, *sets),
                       "party1", 0.2, 0)
        for sets in ((), (noise,))
    )  # fmt: skip
    assert set(clear) == {ESA, GRN, REGRESSION}
    assert clear[ESA].mse < 0.5 * clear[ESA].floor and clear[GRN].mse < 0.75 * clear[REGRESSION].mse
    assert ESA not in noised  # the clip bends the model
    assert noised[GRN].mse > 0.95 * noised[GRN].floor


def test_models_that_cannot_be_restored_are_refused(tmp_path: Path) -> None:
    run = captured(tmp_path, {"name": "agg_vfl"}, "federation.epochs=1")
    with pytest.raises(InputError, match="agg_vfl: its model cannot be restored"):
        infer_features(run, "party1", 0.2, 0)


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
