import json

import pytest
import torch
from torch import nn

from colonnade.common.config.optimisers import (
    AdadeltaConfig,
    AdagradConfig,
    AdamConfig,
    AdamWConfig,
    OptimiserConfig,
    RmspropConfig,
    SgdConfig,
)
from colonnade.common.errors import CheckpointError
from colonnade.common.models.optimiser import build_optimiser, stepper
from colonnade.common.run.state import Snapshot, State

OPTIMISERS = [
    SgdConfig(momentum=0),
    SgdConfig(),
    SgdConfig(nesterov=True),
    AdamConfig(),
    AdamWConfig(),
    AdagradConfig(lr_decay=0.1),
    RmspropConfig(),
    RmspropConfig(momentum=0.9, centered=True),
    AdadeltaConfig(),
]


def trained(state: State, optimiser: OptimiserConfig, steps: int) -> nn.Module:
    """Keeps a model, its optimiser and a counter, and makes some steps."""
    torch.manual_seed(0)
    model = state.keep("model", lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
    steps_of = state.keep("optimiser", lambda: build_optimiser(optimiser, model.parameters()))
    noise = state.keep("noise", lambda: torch.Generator().manual_seed(1))
    count = state.keep("count", lambda: {"steps": 0, 7: (1.5, None, True)})
    step = stepper(steps_of)
    for _ in range(steps):
        steps_of.zero_grad()
        model(torch.randn(5, 3, generator=noise)).square().sum().backward()
        step()
        count["steps"] += 1
    return model


def through_json(snapshot: Snapshot) -> Snapshot:
    """A snapshot after a round trip through a file."""
    return Snapshot(snapshot.tensors, json.loads(json.dumps(snapshot.values)))


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_a_restored_state_goes_on_as_if_it_had_never_stopped(optimiser: OptimiserConfig) -> None:
    whole, first = State(), State()
    trained(whole, optimiser, 5)
    trained(first, optimiser, 3)
    second = State(through_json(first.capture()))
    model = trained(second, optimiser, 2)
    for ours, theirs in zip(model.state_dict().values(), whole["model"].state_dict().values(), strict=True):
        assert torch.equal(ours, theirs)
    assert second["count"] == {"steps": 5, 7: (1.5, None, True)}
    assert torch.equal(second["noise"].get_state(), whole["noise"].get_state())


def test_a_snapshot_does_not_change_with_the_state() -> None:
    state = State()
    values = state.keep("values", lambda: torch.zeros(3))
    parts = state.keep("parts", lambda: [torch.ones(2)])
    snapshot = state.capture()
    values += 1
    parts[0] += 1
    again = State(snapshot)
    assert torch.equal(again.keep("values", lambda: torch.ones(3)), torch.zeros(3))
    assert torch.equal(again.keep("parts", lambda: [])[0], torch.ones(2))


@pytest.mark.parametrize("optimiser", OPTIMISERS, ids=str)
def test_a_snapshot_can_be_restored_twice(optimiser: OptimiserConfig) -> None:
    """Training that goes on from it changes no tensor of it."""
    first = State()
    first.keep("parts", lambda: [torch.ones(2)])
    trained(first, optimiser, 3)
    snapshot = first.capture()
    models = []
    for again in (State(snapshot), State(snapshot)):
        parts = again.keep("parts", lambda: [])
        models.append(trained(again, optimiser, 2).state_dict())
        assert torch.equal(parts[0], torch.ones(2))
        parts[0] += 1
    assert all(torch.equal(one, two) for one, two in zip(*(model.values() for model in models), strict=True))


def test_state_that_was_not_saved_begins_anew() -> None:
    state = State(Snapshot({}, {"other": {"items": []}}))
    assert state.keep("list", lambda: [1]) == [1]
    assert "other" not in state


@pytest.mark.parametrize("made", [torch.zeros(4), torch.zeros(3, dtype=torch.float64), nn.Linear(2, 2)])
def test_mismatched_state_is_refused_with_its_name(made: object) -> None:
    saved = State()
    saved.keep("duals", lambda: torch.zeros(3))
    with pytest.raises(CheckpointError, match="the checkpoint's duals does not fit"):
        State(saved.capture()).keep("duals", lambda: made)


def test_a_model_of_another_shape_is_refused() -> None:
    saved = State()
    saved.keep("model", lambda: nn.Linear(3, 4))
    with pytest.raises(CheckpointError, match="model does not fit"):
        State(saved.capture()).keep("model", lambda: nn.Linear(3, 5))


@pytest.mark.parametrize("value", [{1.5, 2.5}, object(), 3, [object()]])
def test_state_that_cannot_be_saved_or_restored_is_refused_at_capture(value: object) -> None:
    state = State()
    state.keep("thing", lambda: value)
    with pytest.raises(TypeError, match="thing"):
        state.capture()
