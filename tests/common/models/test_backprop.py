"""The hand-written backward pass and the local steps, against autograd and torch's own optimisers."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from colonnade.common.models.backprop import Autograd, Stack, backprop
from colonnade.common.models.local_steps import local_steps
from colonnade.common.models.optimiser import stepper

Optimisers = Callable[[nn.Module], torch.optim.Optimizer]

ROWS, COLUMNS, CLASSES = 33, 14, 4

STACKS = {
    "paper": [nn.Linear(14, 20), nn.ReLU(), nn.Linear(20, 9), nn.ReLU()],
    "no last relu": [nn.Linear(14, 20), nn.ReLU(), nn.Linear(20, 9)],
    "one layer": [nn.Linear(14, 9)],
    "no bias": [nn.Linear(14, 6, bias=False), nn.ReLU(inplace=True), nn.Linear(6, 9, bias=False)],
    "deep": [nn.Linear(14, 8), nn.Linear(8, 30), nn.ReLU(), nn.Linear(30, 12), nn.ReLU(), nn.Linear(12, 9)],
}
OPTIMISERS: dict[str, Optimisers] = {
    "plain": lambda model: torch.optim.SGD(model.parameters(), lr=0.3),
    "momentum": lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2),
    "plain, fused": lambda model: torch.optim.SGD(model.parameters(), lr=0.3, weight_decay=1e-2, fused=True),
    "nesterov, fused": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, nesterov=True, fused=True
    ),
    "momentum, fused": lambda model: torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2, dampening=0.2, fused=True
    ),
    "two groups": lambda model: torch.optim.SGD(
        [{"params": list(model.parameters())[:1], "lr": 0.2}, {"params": list(model.parameters())[1:]}],
        lr=0.1,
        momentum=0.5,
        fused=True,
    ),
    "adam": lambda model: torch.optim.Adam(model.parameters(), lr=1e-2),
}


def stack(name: str, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(5)
    model = nn.Sequential(*copy.deepcopy(STACKS[name])).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def gradients(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


@pytest.mark.parametrize("name", STACKS)
def test_stack_gives_the_embeddings_and_gradients_of_autograd(name: str) -> None:
    model, twin = stack(name), stack(name)
    inputs, gradient = normal(ROWS, COLUMNS), normal(ROWS, 9, seed=1)
    by_hand, by_graph = backprop(model), Autograd(twin)
    assert isinstance(by_hand, Stack)
    for _ in range(2):
        torch.testing.assert_close(by_hand.forward(inputs), by_graph.forward(inputs))
        by_hand.backward(gradient.clone())
        by_graph.backward(gradient)
        assert len(gradients(model)) == len(list(model.parameters()))
        torch.testing.assert_close(gradients(model), gradients(twin))


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("threshold", [0.5, 20.0, 1e9])
def test_rows_are_clipped_as_if_each_had_gone_back_alone(name: str, threshold: float) -> None:
    model = stack(name)
    inputs, gradient = normal(ROWS, COLUMNS), normal(ROWS, 9, seed=1)
    batch, parameters = backprop(model), list(model.parameters())
    batch.forward(inputs)
    expected = [torch.zeros_like(parameter) for parameter in parameters]
    for x, g in zip(inputs, gradient, strict=True):
        alone = torch.autograd.grad((model(x.unsqueeze(0)) * g).sum(), parameters)
        norm = torch.cat([part.flatten() for part in alone]).norm()
        expected = [
            total + part * (threshold / norm.clamp(min=threshold)) for total, part in zip(expected, alone, strict=True)
        ]
    torch.testing.assert_close(batch.clipped(gradient.clone(), threshold), expected)


def test_stack_sees_parameters_that_changed_since_the_last_forward() -> None:
    model = stack("paper")
    batch = backprop(model)
    before = batch.forward(normal(ROWS, COLUMNS)).clone()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    after = batch.forward(normal(ROWS, COLUMNS))
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, model(normal(ROWS, COLUMNS)).detach())


def test_gradients_replace_those_that_were_there() -> None:
    for batch_of in (backprop, Autograd):
        model = stack("paper")
        batch = batch_of(model)
        batch.forward(normal(ROWS, COLUMNS))
        batch.backward(normal(ROWS, 9))
        run_cache = [gradient.clone() for gradient in gradients(model)]
        batch.forward(normal(ROWS, COLUMNS))
        batch.backward(normal(ROWS, 9))
        torch.testing.assert_close(gradients(model), run_cache)


def hooked() -> nn.Module:
    model = stack("paper")
    model[0].register_forward_hook(lambda *_: None)
    return model


def partly_frozen() -> nn.Module:
    model = stack("paper")
    model[0].weight.requires_grad_(False)
    return model


def tied() -> nn.Module:
    layer = nn.Linear(COLUMNS, COLUMNS)
    return nn.Sequential(layer, nn.ReLU(), layer).double()


class Branched(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) + 1.0


@pytest.mark.parametrize(
    "model",
    [
        hooked(),
        partly_frozen(),
        tied(),
        Branched(nn.Linear(COLUMNS, 3)).double(),
        nn.Linear(COLUMNS, 3).double(),
        nn.Sequential(nn.ReLU(), nn.Linear(COLUMNS, 3)).double(),
        nn.Sequential(nn.Linear(COLUMNS, 3), nn.Tanh()).double(),
        nn.Sequential(nn.Linear(COLUMNS, 3), nn.ReLU(), nn.ReLU()).double(),
        nn.utils.parametrizations.weight_norm(nn.Linear(COLUMNS, 3)).double(),
    ],
)
def test_unknown_layers_go_through_autograd(model: nn.Module) -> None:
    inputs = normal(ROWS, COLUMNS)
    batch = backprop(model)
    assert isinstance(batch, Autograd)
    embeddings = batch.forward(inputs)
    torch.testing.assert_close(embeddings, model(inputs).detach())
    batch.backward(torch.ones_like(embeddings))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad(model(inputs).sum(), trained)
    torch.testing.assert_close(gradients(model), list(expected))


def test_inputs_of_more_axes_go_through_autograd() -> None:
    model, inputs = stack("paper"), normal(2, 5, COLUMNS)
    batch = backprop(model)
    embeddings = batch.forward(inputs)
    torch.testing.assert_close(embeddings, model(inputs).detach())
    batch.backward(torch.ones_like(embeddings))
    torch.testing.assert_close(
        gradients(model), list(torch.autograd.grad(model(inputs).sum(), list(model.parameters())))
    )


def test_batches_of_different_sizes_take_turns() -> None:
    model = stack("paper")
    batch = backprop(model)
    for rows in (ROWS, 5, ROWS):
        inputs = normal(rows, COLUMNS, seed=rows)
        embeddings = batch.forward(inputs)
        torch.testing.assert_close(embeddings, model(inputs).detach())
        batch.backward(torch.ones_like(embeddings))
        expected = torch.autograd.grad(model(inputs).sum(), list(model.parameters()))
        torch.testing.assert_close(gradients(model), list(expected))


def test_backward_without_forward_is_refused() -> None:
    batch = Autograd(stack("paper"))
    with pytest.raises(RuntimeError, match="forward"):
        batch.backward(normal(ROWS, 9))


def steps_by_autograd(model: nn.Module, optimiser: torch.optim.Optimizer, at: dict[str, Tensor]) -> None:
    """Three steps of Eq. 9 as it is printed."""
    for _ in range(3):
        optimiser.zero_grad()
        logits = model(at["inputs"]) @ at["head"]
        linear = (at["dual"] * logits).sum()
        quadratic = 1.5 / 2 * (at["residual"] - logits).square().sum()
        ((linear + quadratic) / len(logits)).backward()
        optimiser.step()


def a_round(seed: int, rows: int = ROWS) -> dict[str, Tensor]:
    return {
        "inputs": normal(rows, COLUMNS, seed=seed),
        "head": normal(9, CLASSES, seed=seed + 1) / 3,
        "dual": normal(rows, CLASSES, seed=seed + 2) / 3,
        "residual": normal(rows, CLASSES, seed=seed + 3),
    }


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("network", [*STACKS, "tanh"])
def test_local_steps_are_those_of_equation_9_from_round_to_round(optimiser: str, network: str) -> None:
    if network == "tanh":
        model: nn.Module = nn.Sequential(stack("paper"), nn.Tanh())
    else:
        model = stack(network)
    twin = copy.deepcopy(model)
    ours, theirs = OPTIMISERS[optimiser](model), OPTIMISERS[optimiser](twin)
    for at in (a_round(10), a_round(20), a_round(30, rows=7)):
        local_steps(backprop(model), stepper(ours), **at, rho=1.5, steps=3)
        steps_by_autograd(twin, theirs, at)
        torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    torch.testing.assert_close(ours.state_dict()["state"], theirs.state_dict()["state"])


class HalfUsed(nn.Module):
    """A model with parameters that never get a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = stack("paper"), stack("one layer")

    def forward(self, inputs: Tensor) -> Tensor:
        return self.used(inputs)


def test_parameters_without_a_gradient_are_left_alone() -> None:
    model = HalfUsed()
    twin = copy.deepcopy(model)
    ours, theirs = OPTIMISERS["momentum, fused"](model), OPTIMISERS["momentum, fused"](twin)
    local_steps(backprop(model), stepper(ours), **a_round(10), rho=1.5, steps=3)
    steps_by_autograd(twin, theirs, a_round(10))
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()))
    torch.testing.assert_close(list(model.unused.parameters()), list(stack("one layer").parameters()))


def test_momentum_is_restored_with_the_optimisers_state() -> None:
    model = stack("paper")
    optimiser = OPTIMISERS["momentum"](model)
    local_steps(backprop(model), stepper(optimiser), **a_round(10), rho=1.0, steps=3)
    resumed = copy.deepcopy(model)
    again = OPTIMISERS["momentum"](resumed)
    again.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    local_steps(backprop(model), stepper(optimiser), **a_round(20), rho=1.0, steps=3)
    local_steps(backprop(resumed), stepper(again), **a_round(20), rho=1.0, steps=3)
    torch.testing.assert_close(list(model.parameters()), list(resumed.parameters()), rtol=0, atol=0)


def test_local_steps_of_a_float32_model_stay_within_rounding_of_autograd() -> None:
    model, twin = stack("paper", torch.float32), stack("paper", torch.float32)
    ours, theirs = OPTIMISERS["momentum"](model), OPTIMISERS["momentum"](twin)
    at = {name: value.float() for name, value in a_round(10).items()}
    local_steps(backprop(model), stepper(ours), **at, rho=1.5, steps=3)
    steps_by_autograd(twin, theirs, at)
    torch.testing.assert_close(list(model.parameters()), list(twin.parameters()), rtol=1e-4, atol=1e-6)


def test_a_flatten_in_front_is_undone_by_hand_too() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2))
    inputs, gradient = torch.randn(5, 2, 3), torch.randn(5, 2)
    by_hand = backprop(model)
    assert isinstance(by_hand, Stack)
    assert torch.allclose(by_hand.forward(inputs), model(inputs))
    by_hand.backward(gradient.clone())
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(inputs).backward(gradient)
    for ours, theirs in zip(found, model.parameters(), strict=True):
        assert torch.allclose(ours, theirs.grad, atol=1e-6)
