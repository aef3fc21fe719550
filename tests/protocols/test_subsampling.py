"""A share of the parties in every round: sampling, imputation of the others, and each party's cost."""

from __future__ import annotations

import pytest
import torch

from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError
from colonnade.server.member.summary import protection
from tests.protocols.test_resume import END, SHORT, same
from tests.support.federation import config, federate

PROTOCOLS = {
    "vimadmm": {"name": "vimadmm", "embedding": 8, "tau": 3, "missing": "last"},
    "vimadmm_j": {"name": "vimadmm_j", "embedding": 8, "tau": 3, "missing": "last"},
}
HALF = "federation.participation=0.5"


@pytest.mark.parametrize("name", PROTOCOLS)
def test_only_sampled_parties_send_and_are_sent_messages(name: str) -> None:
    outcome = federate(config(PROTOCOLS[name], HALF, *SHORT))
    schedule = outcome.server.schedule
    drawn = [schedule.participants(t) for t in range(1, END + 1)]
    assert all(len(parties) == 2 for parties in drawn) and len(set(drawn)) > 2
    training = [(who, m.round) for who, _, m in outcome.messages if who != SERVER and not hasattr(m, "part")]
    assert sorted(training) == sorted((who, t) for t, parties in enumerate(drawn, 1) for who in parties)
    received = [(to, m.round) for who, to, m in outcome.messages if who == SERVER]
    assert sorted(received) == sorted(training)
    evaluating = {who for who, _, m in outcome.messages if hasattr(m, "part")}
    assert evaluating == set(outcome.clients)
    assert not outcome.of_kind("missing") and outcome.server.missing == {}


def test_a_party_is_imputed_by_its_last_embeddings_of_the_rows() -> None:
    outcome = federate(config(PROTOCOLS["vimadmm"], HALF, *SHORT))
    kept = outcome.server.state["last embeddings"]
    for index, name in enumerate(outcome.clients):
        sent = [m for who, _, m in outcome.messages if who == name and not hasattr(m, "part")]
        rows = outcome.server.schedule.batch(sent[-1].round)
        assert torch.equal(kept[index, rows], sent[-1].h)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_party_pays_only_for_its_own_releases(name: str) -> None:
    private = ("federation.privacy={clip: 1, noise_multiplier: 20}",)
    outcome = federate(config(PROTOCOLS[name], HALF, *SHORT, *private))
    counts = {name: p.releases for name, p in outcome.privacy.items()}
    assert counts == {n: sum(who == n for who, _, _ in outcome.messages) for n in outcome.clients}
    plan = outcome.server.schedule.privacy
    assert plan is not None and max(counts.values()) == plan.releases
    epsilons = protection(outcome.server, counts)["epsilon"]
    assert len(set(counts.values())) > 1 and len(set(epsilons.values())) > 1


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_resumed_run_draws_the_same(name: str) -> None:
    cfg = config(PROTOCOLS[name], HALF, *SHORT)
    alone = federate(cfg, save=True)
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[END][member], alone.saved[END][member])


def test_sampling_all_parties_changes_nothing() -> None:
    cfg = config(PROTOCOLS["vimadmm"], "federation.participation=1.0")
    assert Schedule(cfg.federation, 1797, 0).participants(5) == cfg.federation.names


def test_a_protocol_that_needs_everyone_refuses() -> None:
    with pytest.raises(ConfigError, match=r"participation = 0.5: split needs every party in a round"):
        config({"name": "split"}, HALF)
