"""Every protocol on a device beside the CPU: no tensor stays on the wrong one, and the parameters come out the same."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from colonnade.common.errors import EnvironmentFault
from colonnade.simulation import contexts
from tests.protocols.test_resume import CASES, PROTOCOLS
from tests.support.federation import Outcome, config, federate, parameters
from tests.support.second_device import second_device, second_process

pytestmark = pytest.mark.slow

SHORT = (
    "federation.rounds=2", "federation.epochs=0", "federation.batch=150",
    "federation.rows={train: 300, validation: 50, test: 100}",
)  # fmt: skip
GPU = ("server.device=cuda:0", "every_party.device=cuda:0")
ADAPTIVE = "federation.privacy={mechanism: adaptive, clip: 1, noise_multiplier: 0.05, delta: 1e-4, seeded: true, %s}"
OPTIONS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "noisy labels": (PROTOCOLS["split"], ("server.privacy.labels={deviation: 1, seeded: true}",)),
    "response noise": (
        PROTOCOLS["vafl"],
        ("server.privacy.answers={clip: 1, head_clip: 1, noise_multiplier: 1, seeded: true}",),
    ),
    "noise and quantised messages": (
        PROTOCOLS["vimadmm"],
        ("federation.privacy={clip: 1, noise_multiplier: 10, seeded: true}", "federation.compress={up: 4, down: 8}"),
    ),
    "rows protected, noise on the step": (PROTOCOLS["vfl_afe"], (ADAPTIVE % "steps: {clip: 1}",)),
    "rows protected, the factor learned, contrastive adjustment": (
        PROTOCOLS["vfl_afe"],
        (ADAPTIVE % "rescale: released", "federation.adjust={contrastive: .1, confidence: .2, normality: .01}"),
    ),
    "parties with models and optimisers of their own": (
        PROTOCOLS["split"],
        (
            "every_party.data.split={kind: patches, grid: [2, 2]}",
            "parties.party1={model: lenet, optimiser: {name: adagrad}}",
            "parties.party2={model: cnn, optimiser: {name: adam}}",
            "parties.party3={model: mlp, optimiser: {name: adadelta}}",
            "parties.party4={model: linear, optimiser: {name: rmsprop, centered: true}}",
            "server.head=normed",
            "server.class_weights=balanced",
        ),
    ),
}
ON_THE_CPU = ("codes", "secureboost", "additive", "hetero_lr")  # which count; encoders of codes are linear
AS_ON_THE_CPU = {  # least share of parameters within the tolerance
    "noise and quantised messages": 0.25,  # a rounding error moves values over thresholds of the quantiser
    "parties with models and optimisers of their own": 0.98,  # a first step of Adam is as large at a gradient of 1e-9
}
# Each has its code on devices from another: bins and card lie on the CPU, the rest is hetero_lr's; two heads are one.
ELSEWHERE = ("scorecard", "c_vfl with an MLP head", "split_avg of maxima")
RUNS = {name: (protocol, ()) for name, protocol in CASES.items() if name not in ELSEWHERE} | OPTIONS


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Executor]:
    with second_process() as process:
        yield process


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_the_same_on_another_device_and_goes_on_there(name: str, elsewhere: Executor) -> None:
    protocol, sets = RUNS[name]
    here = federate(config(protocol, *SHORT, *sets))
    alone, resumed, metrics = elsewhere.submit(_on_the_second_device, name).result()
    for member, values in parameters(here).items():
        torch.testing.assert_close(alone[member], values, atol=1e-5, rtol=1e-4)
        assert torch.equal(resumed[member], alone[member])
    for metric, value in here.server.metrics.items():
        assert metrics[metric] == pytest.approx(value, abs=1e-2)


def _on_the_second_device(name: str) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, float]]:
    """The parameters that a run ends with, those that its resumed second round ends with, and its metrics."""
    protocol, sets = RUNS[name]
    with second_device() as device, mock.patch.object(contexts, "choose_device", lambda *_of, **_how: device):
        cfg = config(protocol, *SHORT, *GPU, *sets)
        alone = federate(cfg, save=True)
        resumed = federate(cfg, start=(1, alone.saved[1]))
        if name not in ON_THE_CPU:
            assert {values.device for values in parameters(alone).values()} == {device}
        return _copied(alone), _copied(resumed), dict(alone.server.metrics)


def _copied(outcome: Outcome) -> dict[str, Tensor]:
    return {member: values.cpu() for member, values in parameters(outcome).items()}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_on_a_gpu_is_as_on_the_cpu_repeats_itself_and_goes_on(name: str) -> None:
    protocol, sets = RUNS[name]
    here, cfg = federate(config(protocol, *SHORT, *sets)), config(protocol, *SHORT, *GPU, *sets)
    alone = federate(cfg, save=True)
    again, resumed = federate(cfg), federate(cfg, start=(1, alone.saved[1]))
    for member, values in parameters(here).items():
        found = parameters(alone)[member]
        assert found.device.type == ("cpu" if name in ON_THE_CPU else "cuda")
        assert torch.isclose(found.cpu(), values, atol=1e-3, rtol=1e-2).double().mean() >= AS_ON_THE_CPU.get(name, 1)
        assert torch.equal(parameters(again)[member], found)
        assert torch.equal(parameters(resumed)[member], found)


def test_a_simulation_honours_the_device_that_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(EnvironmentFault, match="device cuda:0: this process sees 0 GPUs"):
        federate(config(PROTOCOLS["split"], *SHORT, GPU[1]))


@pytest.mark.parametrize("name", ["sum", "index", "cat", "numpy", "generator"])
def test_the_second_device_refuses_what_a_gpu_refuses(name: str, elsewhere: Executor) -> None:
    with pytest.raises((RuntimeError, TypeError), match=r"second|CPU|numpy"):
        elsewhere.submit(_forget, name).result()


def _forget(name: str) -> None:
    with second_device() as device:
        x = torch.zeros(2, device=device)
        match name:
            case "sum":
                x + torch.ones(2)
            case "index":
                torch.ones(2)[torch.tensor([0])] = x[:1]
            case "cat":
                torch.cat([x, torch.ones(2)])
            case "numpy":
                x.numpy()
            case "generator":
                torch.randn(2, device=device, generator=torch.Generator())
