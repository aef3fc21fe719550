"""Local steps that never raise their objective, however large the learning rate and the data."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from colonnade.common.models.admm import local_gradient, residual
from colonnade.common.models.backprop import backprop
from colonnade.common.models.local_steps import Descent, joint_local_steps, local_steps

ROWS, WIDTH, CLASSES = 12, 6, 3


class Problem:
    """Eq. 9 of one party: inputs of some scale, a dual and a residual."""

    def __init__(self, scale: float, seed: int, *, hidden: bool = True) -> None:
        draws = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        layers = [nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, WIDTH)] if hidden else [nn.Linear(5, WIDTH)]
        self.model = nn.Sequential(*layers)
        self.x = torch.randn(ROWS, 5, generator=draws) * scale
        self.head = nn.Parameter(torch.randn(WIDTH, CLASSES, generator=draws))
        self.dual, self.target = torch.randn(2, ROWS, CLASSES, generator=draws)

    def value(self, rho: float) -> float:
        o = self.model(self.x) @ self.head
        return float(((self.dual * o).sum() + rho / 2 * (o - self.target).square().sum()) / ROWS)

    @property
    def terms(self) -> dict[str, Tensor]:
        return {"dual": self.dual, "residual": self.target}


@given(
    exponent=st.integers(-3, 4), lr=st.sampled_from([1e-3, 0.1, 10.0]), momentum=st.sampled_from([0.0, 0.9]),
    steps=st.integers(1, 12), seed=st.integers(0, 3), joint=st.booleans(),
)  # fmt: skip
def test_the_objective_is_never_higher_after_the_steps(
    exponent: int, lr: float, momentum: float, steps: int, seed: int, joint: bool
) -> None:
    problem, rho = Problem(10.0**exponent, seed), 2.0
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=lr, momentum=momentum)
    before = problem.value(rho)
    if joint:
        own = torch.optim.SGD([problem.head], lr=lr)
        descent = Descent(optimiser, own)
        joint_local_steps(backprop(problem.model), optimiser.step, problem.head, own.step, problem.x,
                          **problem.terms, rho=rho, steps=steps, descent=descent)  # fmt: skip
    else:
        local_steps(backprop(problem.model), optimiser.step, problem.x, head=problem.head.detach(),
                    **problem.terms, rho=rho, steps=steps, descent=Descent(optimiser))  # fmt: skip
    assert problem.value(rho) <= before + 1e-5 * abs(before)
    assert all(bool(parameter.isfinite().all()) for parameter in problem.model.parameters())


def test_momentum_of_other_rows_cannot_raise_it() -> None:
    """Momentum from small rows meets a batch with an outlier."""
    problem, outlier = Problem(1.0, 0), Problem(300.0, 1)
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=0.1, momentum=0.9)
    bottom, descent = backprop(problem.model), Descent(optimiser)
    for inputs in (problem.x, outlier.x):
        problem.x = inputs
        before = problem.value(1.0)
        local_steps(bottom, optimiser.step, inputs, head=problem.head.detach(), **problem.terms, rho=1.0, steps=10,
                    descent=descent)  # fmt: skip
        assert problem.value(1.0) <= before


def test_without_it_the_same_steps_diverge() -> None:
    problem = Problem(100.0, 0)
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=0.1, momentum=0.9)
    before = problem.value(1.0)
    local_steps(backprop(problem.model), optimiser.step, problem.x, head=problem.head.detach(), **problem.terms,
                rho=1.0, steps=10)  # fmt: skip
    assert not problem.value(1.0) <= before


def test_short_steps_are_those_of_the_optimiser() -> None:
    plain = Problem(1.0, 0)
    bounded = copy.deepcopy(plain)
    for problem, bounds in ((plain, False), (bounded, True)):
        optimiser = torch.optim.SGD(problem.model.parameters(), lr=1e-3, momentum=0.9)
        local_steps(backprop(problem.model), optimiser.step, problem.x, head=problem.head.detach(), **problem.terms,
                    rho=1.0, steps=5, descent=Descent(optimiser) if bounds else None)  # fmt: skip
    for one, other in zip(plain.model.parameters(), bounded.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_linear_step_is_half_as_long_as_the_best_one_at_most() -> None:
    problem, rho = Problem(50.0, 2, hidden=False), 1.5
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=1.0)
    descent, bottom = Descent(optimiser), backprop(problem.model)
    logits = bottom.forward(problem.x) @ problem.head.detach()
    bottom.backward(local_gradient(logits, problem.dual, problem.target, rho) @ problem.head.detach().T)
    descent.begin(logits, lambda: bottom.forward(problem.x) @ problem.head.detach(), rho)
    values = []
    for share in (0.5 * descent.share, descent.share, 2 * descent.share, 3 * descent.share):
        moved = copy.deepcopy(problem)
        with torch.no_grad():
            for parameter, given_ in zip(moved.model.parameters(), problem.model.parameters(), strict=True):
                parameter.sub_(given_.grad, alpha=share)
        values.append(moved.value(rho))
    assert values[2] == min(values)  # twice the share is the minimum along the step


def test_other_optimisers_are_left_alone() -> None:
    problem = Problem(1e4, 0)
    plain = copy.deepcopy(problem)
    for one, bounds in ((plain, False), (problem, True)):
        optimiser = torch.optim.Adam(one.model.parameters(), lr=0.01)
        local_steps(backprop(one.model), optimiser.step, one.x, head=one.head.detach(), **one.terms, rho=1.0, steps=4,
                    descent=Descent(optimiser) if bounds else None)  # fmt: skip
    for ours, theirs in zip(problem.model.parameters(), plain.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


class Normed(Problem):
    """The same with a batch norm, whose running statistics are no parameters."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__(scale, 0)
        self.norm = nn.BatchNorm1d(8)
        self.model.insert(1, self.norm)

    def statistics(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self.model.buffers()]


def test_a_step_that_is_tried_or_taken_back_leaves_running_statistics_as_they_were() -> None:
    problem = Normed()
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=1e6)
    bottom, descent = backprop(problem.model), Descent(optimiser, buffers=problem.model.buffers())
    head = problem.head.detach()
    o = bottom.forward(problem.x) @ head
    bottom.backward(local_gradient(o, problem.dual, problem.target, 1.0) @ head.T)
    before = problem.statistics()
    descent.begin(o, lambda: bottom.forward(problem.x) @ head, 1.0)
    assert all(map(torch.equal, problem.statistics(), before)) and descent.share < 1
    assert descent.descended(torch.tensor(1.0))
    descent.keep()
    optimiser.step()  # far too long: the gradients were not shortened
    bottom.forward(problem.x)
    assert not all(map(torch.equal, problem.statistics(), before))
    assert not descent.descended(torch.tensor(2.0))
    assert all(map(torch.equal, problem.statistics(), before))
    bottom.forward(problem.x)  # a step that is taken keeps its statistics
    descent.keep()
    after = problem.statistics()
    assert descent.descended(torch.tensor(0.5)) and all(map(torch.equal, problem.statistics(), after))


@pytest.mark.parametrize("joint", [False, True])
def test_local_steps_that_are_shortened_keep_usable_running_statistics(joint: bool) -> None:
    """With the rate of 1e6, one forward pass after a whole step moves the running variance by many powers of ten."""
    problem = Normed()
    optimiser = torch.optim.SGD(problem.model.parameters(), lr=1e6)
    own = torch.optim.SGD([problem.head], lr=1e6)
    bounds = Descent(*((optimiser, own) if joint else (optimiser,)), buffers=problem.model.buffers())
    more = dict(rho=1.0, steps=10, descent=bounds, **problem.terms)
    if joint:
        joint_local_steps(backprop(problem.model), optimiser.step, problem.head, own.step, problem.x, **more)
    else:
        local_steps(backprop(problem.model), optimiser.step, problem.x, head=problem.head.detach(), **more)
    largest = problem.model[0](problem.x).var(0).max()
    assert float(problem.norm.running_var.max()) < 10 * max(float(largest), 1.0)


@pytest.mark.parametrize("parties", [1, 3, 14])
def test_damped_residuals_have_the_gradient_of_eq_9_at_the_old_logits_and_cover_the_remainder_once(
    parties: int,
) -> None:
    draws = torch.Generator().manual_seed(0)
    own, z = torch.randn(parties, ROWS, CLASSES, generator=draws), torch.randn(ROWS, CLASSES, generator=draws)
    dual, total, rho = torch.randn(ROWS, CLASSES, generator=draws), own.sum(0), 0.7
    plain, damped = residual(z, total, own), residual(z, total, own, float(parties))
    for k in range(parties):
        expected = local_gradient(own[k], dual, plain[k], rho)
        torch.testing.assert_close(local_gradient(own[k], dual, damped[k], parties * rho), expected)
    torch.testing.assert_close(damped.sum(0), z)  # each party at its residual: together they are z
