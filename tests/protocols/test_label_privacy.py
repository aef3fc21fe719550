"""Every protocol trains only on noisy labels if so configured at the server."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.messaging.label_messages import Beliefs, Labels
from colonnade.common.protocols.vimadmm_j import Logits, Update
from colonnade.simulation.federation import RunFiles
from tests.protocols.test_resume import END, PROTOCOLS, SHORT, left_alone, same
from tests.support.federation import Outcome, config, federate, parameters

pytestmark = pytest.mark.slow

# One of each way in which the labels of a batch are used.
FEW = ("split", "fdml", "c_vfl", "czofo", "vimadmm", "linear_admm", "fedvs", "vfedmh", "codes")
NOISY = "server.privacy.labels={deviation: 1, seeded: true}"


@cache
def noisy(name: str) -> tuple[Config, Outcome]:
    """A run shared by several tests."""
    cfg = config(PROTOCOLS[name], NOISY, *SHORT)
    return cfg, federate(cfg, save=True)


@pytest.mark.parametrize("name", [*FEW, "secureboost"])
def test_the_true_training_labels_are_gone(name: str) -> None:
    server = noisy(name)[1].server
    train = server.schedule.partition.train
    assert (server.labels[train] == -1).all() and (server.labels >= 0).sum() == len(server.labels) - len(train)
    assert math.isfinite(server.metrics["train_loss"]) and server.metrics["test_accuracy"] > 0
    assert server.noisy is not None and server.noisy.epsilon == pytest.approx(2 * math.sqrt(2), rel=1e-5)


@pytest.mark.parametrize("name", FEW)
def test_a_resumed_run_with_noisy_labels_ends_as_one_that_was_left_alone(name: str) -> None:
    cfg, alone = noisy(name)
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[END][member], alone.saved[END][member])


@pytest.mark.parametrize("name", sorted({*FEW} - {"codes"}))
def test_without_much_noise_it_learns_as_from_the_labels(name: str) -> None:
    """At epsilon 2e5 the evidence is overwhelming: the posterior is the label itself."""
    still = federate(config(PROTOCOLS[name], "server.privacy.labels={epsilon: 200000}", *SHORT))
    _, clear = left_alone(name)
    for member, values in parameters(clear).items():
        torch.testing.assert_close(parameters(still)[member], values, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["vimadmm", "fdml"])
def test_sets_of_classes_take_the_place_of_labels(name: str) -> None:
    cfg = config(PROTOCOLS[name], "server.privacy.labels={mechanism: subset, epsilon: 2.0, seeded: true}", *SHORT)
    alone = federate(cfg, save=True)
    server = alone.server
    assert (server.labels[server.schedule.partition.train] == -1).all()
    assert server.noisy is not None and server.noisy.epsilon == pytest.approx(2.0, rel=1e-6)
    assert set(server.noisy.values.unique().tolist()) == {0.0, 1.0}
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[END][member], alone.saved[END][member])


def test_z_minimises_the_loss_of_the_released_set_and_the_dual_is_its_gradient() -> None:
    """From what was sent: z = total - dual / rho in the first round, where the dual was 0."""
    protocol = {"name": "vimadmm_j", "rho": 0.8, "damping": "none"}
    sets = "server.privacy.labels={mechanism: subset, epsilon: 2.0, seeded: true%s}"

    def gap(more: str) -> float:
        server, messages = (outcome := federate(config(protocol, sets % more, *SHORT))).server, outcome.messages
        first = [message for _, _, message in messages if getattr(message, "round", 0) == 1]
        total = torch.stack([message.o for message in first if isinstance(message, Logits)]).sum(0)
        dual = next(message.dual for message in first if isinstance(message, Update))
        assert server.noisy is not None
        evidence = torch.zeros(len(server.labels), 10)
        evidence[server.schedule.partition.train] = server.noisy.evidence().float()
        z = total - dual / 0.8
        return float((dual - z.softmax(-1) + (z + evidence[server.schedule.batch(1)]).softmax(-1)).abs().max())

    assert gap("") < 1e-4 and gap(", auxiliary: likelihood") < 1e-4 and gap(", auxiliary: posterior") > 1e-2


@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j", "linear_admm"])
def test_the_loss_of_z_can_be_chosen_where_there_is_a_z(name: str) -> None:
    protocol, seeded = {**PROTOCOLS[name], "rho": 1.0}, "epsilon: 2.0, seeded: true"

    def duals(labels: str) -> torch.Tensor:
        cfg = config(protocol, f"server.privacy.labels={{{labels}}}", "federation.rounds=1", "federation.epochs=0")
        found: torch.Tensor = federate(cfg).server.state["duals"]
        return found

    for noise, by_default, other in (("laplace", "posterior", "likelihood"), ("subset", "likelihood", "posterior")):
        mechanism = f"mechanism: {noise}, {seeded}"
        default = duals(mechanism)
        assert torch.equal(default, duals(f"{mechanism}, auxiliary: {by_default}"))
        assert not torch.allclose(default, duals(f"{mechanism}, auxiliary: {other}"), atol=1e-3)


@pytest.mark.parametrize(
    "name", [name for name, contract in CONTRACTS.items() if contract.exchange.shares_labels and name != "codes"]
)
def test_parties_are_sent_the_posterior_of_noise_and_model(name: str) -> None:
    _, outcome = noisy(name)
    assert not [message for _, _, message in outcome.messages if isinstance(message, Labels)]
    sent = [message for _, _, message in outcome.messages if isinstance(message, Beliefs)]
    assert sent and outcome.server.noisy is not None
    evidence = torch.zeros(len(outcome.server.labels), 10)
    evidence[outcome.server.schedule.partition.train] = outcome.server.noisy.evidence().float()
    for message in sent:
        torch.testing.assert_close(message.y.sum(1), torch.ones(len(message.y)))
    first = next(message for message in sent if message.round == 1)
    logits = first.y.log() - evidence[outcome.server.schedule.batch(1)]  # of the model, but for a number a row
    assert (logits - logits.mean(1, keepdim=True)).abs().max() < 3  # which predicts little yet


BY_PRIOR = "server.privacy.labels={mechanism: subset, epsilon: 2.0, prior: true, seeded: true}"


@pytest.mark.parametrize("name", ["split", "fdml", "vimadmm", "vfedmh"])
def test_labels_wait_for_a_row_s_first_use_and_are_released_once(name: str, tmp_path: Path) -> None:
    cfg = config(PROTOCOLS[name], BY_PRIOR, *SHORT)
    outcome = federate(cfg, files=RunFiles(tmp_path, cfg, Path()))
    noisy = outcome.server.noisy
    assert noisy is not None and noisy.pending is not None and noisy.pending.released.all()  # an epoch has passed
    assert (outcome.server.labels[outcome.server.schedule.partition.train] == -1).all()
    assert (noisy.pending.labels == -1).all()
    (kept,) = tmp_path.rglob("noisy-labels.safetensors")
    assert torch.equal(load_file(kept)["values"], noisy.values)
    assert math.isfinite(outcome.server.metrics["train_loss"])


def test_a_run_that_goes_on_keeps_the_releases_that_were_made(tmp_path: Path) -> None:
    """Rounds that are made anew, with another prior, draw nothing again."""
    cfg = config(PROTOCOLS["vimadmm"], BY_PRIOR, *SHORT)
    first = federate(cfg, files=RunFiles(tmp_path, cfg, Path())).server.noisy
    before = {path: path.read_bytes() for path in tmp_path.rglob("noisy-labels*")}
    again = federate(cfg, files=RunFiles(tmp_path, cfg, Path())).server.noisy
    assert first is not None and again is not None and torch.equal(first.values, again.values)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("noisy-labels*")}


def test_it_learns_from_labels_released_by_a_prior() -> None:
    protocol = {"name": "vimadmm", "embedding": 16, "tau": 10}
    assert federate(config(protocol, BY_PRIOR, "federation.epochs=4")).server.metrics["test_accuracy"] > 0.8
