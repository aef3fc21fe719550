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
    centred,
    generate,
    infer_features,
    regress,
    solve,
)
from lab.tests.attacks.stage import captured

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
        "federation.rows={train: 256, validation: 0, test: 100}",
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
