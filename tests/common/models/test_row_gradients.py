"""Row gradients against another library, and against a loop over rows."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from colonnade.common.config.models import LinearHeadConfig, MlpHeadConfig, NormedHeadConfig
from colonnade.common.errors import InputError
from colonnade.common.models.backprop import refuse_batch_norm, row_gradients
from colonnade.common.models.heads import head_module

X, Y = torch.randn(7, 5, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2, 2])
HEADS = [LinearHeadConfig(bias=True), MlpHeadConfig(hidden=6, layers=3, dropout=0.0)]


def of(model: nn.Module, x: Tensor = X) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    def loss(parameters: dict[str, Tensor], row: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, parameters, (row[None],)), label[None])

    return row_gradients(loss, dict(model.named_parameters()), x, Y)


@pytest.mark.parametrize("config", HEADS)
def test_they_are_those_of_another_library(config: LinearHeadConfig | MlpHeadConfig) -> None:
    from opacus import GradSampleModule  # takes a second

    torch.manual_seed(0)
    model = head_module(config, 5, 3)
    _, ours, _ = of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its hooks, which torch warns of
        theirs = GradSampleModule(model, loss_reduction="sum")
        functional.cross_entropy(theirs(X), Y, reduction="sum").backward()
    for name, parameter in theirs._module.named_parameters():
        assert torch.allclose(ours[name], parameter.grad_sample, atol=1e-6)


@pytest.mark.parametrize("config", HEADS)
def test_they_are_those_of_a_loop_over_rows(config: LinearHeadConfig | MlpHeadConfig) -> None:
    torch.manual_seed(0)
    model = head_module(config, 5, 3)
    losses, at_parameters, at_inputs = of(model)
    for row in range(len(X)):
        model.zero_grad()
        x = X[row : row + 1].clone().requires_grad_()
        loss = functional.cross_entropy(model(x), Y[row : row + 1])
        loss.backward()
        assert torch.allclose(losses[row], loss) and torch.allclose(at_inputs[row], x.grad[0], atol=1e-6)
        for name, parameter in model.named_parameters():
            assert torch.allclose(at_parameters[name][row], parameter.grad, atol=1e-6)


def test_dropout_draws_for_every_row() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 3))
    _, _, at_inputs = of(model, torch.ones(7, 5))
    assert len({tuple((row == 0).tolist()) for row in at_inputs}) > 1


def test_a_head_in_which_rows_would_meet_is_shown_one_row_at_a_time() -> None:
    class Centred(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x - x.mean(0))

    torch.manual_seed(0)
    _, _, at_inputs = of(Centred(5, 3))
    assert not at_inputs.any()  # of one row the mean is the row


def test_batch_norm_is_refused() -> None:
    with pytest.raises(InputError, match=r"^server\.head: layer 1 is a batch norm"):
        refuse_batch_norm(head_module(NormedHeadConfig(), 5, 3), "server.head")
    for config in HEADS:
        refuse_batch_norm(head_module(config, 5, 3), "server.head")


def test_a_model_with_branches_on_values_is_refused_with_the_reason() -> None:
    class Branching(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    with pytest.raises(InputError, match=r"cannot be taken row by row: .*data-dependent"):
        of(Branching(5, 3))
