"""A model in two parts, its gradients joined by hand, against autograd through both."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.config.optimisers import AdamConfig, OptimiserConfig, SgdConfig
from colonnade.common.models.norm import BatchNorm
from colonnade.common.models.optimiser import build_optimiser
from colonnade.common.models.two_part import TwoPart

WIDTH, CLASSES = 5, 3


def stack(inputs: int) -> nn.Module:
    """The part differentiated by hand."""
    return nn.Sequential(nn.Linear(inputs, 7), nn.ReLU(), nn.Linear(7, WIDTH), nn.ReLU())


def curved(inputs: int) -> nn.Module:
    """The part left to autograd."""
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.Tanh())


def linear(_inputs: int) -> nn.Module:
    return nn.Linear(WIDTH, CLASSES, bias=False)


def mlp(_inputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU(), nn.Linear(6, CLASSES))


SGD, ADAM = SgdConfig(lr=0.2), AdamConfig(lr=0.01)


def two(bottom: nn.Module, head: nn.Module, below: OptimiserConfig = SGD, above: OptimiserConfig = ADAM) -> TwoPart:
    return TwoPart(bottom, head, build_optimiser(below, bottom.parameters()), build_optimiser(above, head.parameters()))


def flat(*modules: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector([p for module in modules for p in module.parameters()]).detach()


@pytest.mark.parametrize("below", [stack, curved])
@pytest.mark.parametrize("above", [linear, mlp])
@given(seed=st.integers(0, 2**20), inputs=st.integers(1, 6), rows=st.integers(1, 9), others=st.integers(0, 3))
def test_steps_are_those_of_autograd_through_both(
    below: Callable[[int], nn.Module],
    above: Callable[[int], nn.Module],
    seed: int,
    inputs: int,
    rows: int,
    others: int,
) -> None:
    """The head is given an average of C embeddings, of which the model's own is one; alone, C is 1."""
    torch.manual_seed(seed)
    bottom, head = below(inputs), above(inputs)
    model, joint = two(bottom, head), copy.deepcopy((bottom, head))
    steps = [torch.optim.SGD(joint[0].parameters(), 0.2, 0.9, weight_decay=1e-3)]
    steps.append(torch.optim.Adam(joint[1].parameters(), 0.01))
    for _ in range(3):
        x, y, theirs = torch.randn(rows, inputs), torch.randint(CLASSES, (rows,)), torch.randn(others, rows, WIDTH)
        share = 1 / (1 + others)
        e = (model.embed(x) + theirs.sum(0)) * share
        r = model.predict(e)
        dr = (r.softmax(1) - functional.one_hot(y, CLASSES)) / rows
        model.learn(dr, share)
        wanted = joint[1]((joint[0](x) + theirs.sum(0)) * share)
        torch.testing.assert_close(r, wanted)
        for step in steps:
            step.zero_grad()
        functional.cross_entropy(wanted, y).backward()
        for step in steps:
            step.step()
    torch.testing.assert_close(flat(bottom, head), flat(*joint), atol=1e-4, rtol=1e-4)


def test_its_output_is_detached_and_the_gradient_is_unchanged() -> None:
    model, x = two(stack(4), mlp(4)), torch.randn(6, 4)
    e = model.embed(x)
    r = model.predict(e)
    assert not e.requires_grad and not r.requires_grad
    dr = torch.randn(6, CLASSES)
    before = dr.clone()
    model.learn(dr)
    assert torch.equal(dr, before)


def test_without_a_share_the_embeddings_are_its_own_alone() -> None:
    torch.manual_seed(0)
    bottom, head, x, dr = stack(4), linear(4), torch.randn(6, 4), torch.randn(6, CLASSES)
    again = copy.deepcopy((bottom, head))
    for parts, share in (((bottom, head), ()), (again, (1.0,))):
        model = two(*parts)
        model.predict(model.embed(x))
        model.learn(dr, *share)
    assert torch.equal(flat(bottom, head), flat(*again))


def test_it_is_evaluated_without_dropout_and_with_running_statistics() -> None:
    torch.manual_seed(0)
    bottom = nn.Sequential(nn.Linear(4, WIDTH), BatchNorm(WIDTH))
    head = nn.Sequential(nn.Dropout(0.5), nn.Linear(WIDTH, CLASSES))
    model, x = two(bottom, head), torch.randn(8, 4)
    model.predict(model.embed(x))  # moves the statistics
    whole = copy.deepcopy(nn.Sequential(bottom, head)).eval()
    for rows in (slice(0, 8), slice(0, 1)):
        with model.evaluation() as own:
            assert not bottom.training and not head.training
            r = own.predict(own.embed(x[rows]))
        assert not r.requires_grad
        torch.testing.assert_close(r, whole(x[rows]))
    assert bottom.training and head.training
    assert not torch.allclose(model.predict(model.embed(x)), whole(x))


def test_an_evaluation_that_fails_leaves_it_in_training() -> None:
    bottom, head = stack(4), mlp(4)
    with pytest.raises(RuntimeError), two(bottom, head).evaluation() as own:
        own.embed(torch.zeros(2, 3))
    assert bottom.training and head.training
