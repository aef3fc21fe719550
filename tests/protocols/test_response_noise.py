"""Response noise through whole runs: where it is added, its cost, and the remaining accuracy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.privacy.accounting.accountant import epsilon
from colonnade.common.protocols.vafl import Embedding, Gradient
from colonnade.server import privacy as answers
from colonnade.server.member.summary import response_noise_summary
from colonnade.server.training.context import ServerContext
from tests.protocols.test_resume import PROTOCOLS, same
from tests.support.federation import Outcome, config, federate, late, parameters

pytestmark = pytest.mark.slow

ABLE = [name for name, contract in CONTRACTS.items() if contract.response_noise]
COME = "federation.protocol.arrivals=true"
BOTH = [pytest.param((), id="together"), pytest.param((COME,), id="as they come")]


def private(sigma: float = 5.0, clip: float = 0.1, head_clip: float = 1.0, seeded: bool = True) -> str:
    settings = f"clip: {clip}, head_clip: {head_clip}, noise_multiplier: {sigma}, seeded: {str(seeded).lower()}"
    return f"server.privacy.answers={{{settings}}}"


def vafl(*sets: str) -> Config:
    short = ("federation.rounds=8", "federation.epochs=0", "federation.evaluate.every=8")
    return config({"name": "vafl", "embedding": 16, "weights_lr": 0.05}, *short, *sets)


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Responses without the noise."""
    monkeypatch.setattr(answers, "secure_normals", lambda shape: torch.zeros(shape, dtype=torch.float64))
    yield


def sent(outcome: Outcome) -> dict[str, Tensor]:
    """The last gradient that every party was sent."""
    return {to: m.dh for _, to, m in outcome.messages if isinstance(m, Gradient)}


@pytest.mark.parametrize("more", BOTH)
def test_with_wide_clips_and_next_to_no_noise_it_takes_the_steps_of_the_clear_protocol(more: tuple[str, ...]) -> None:
    still = federate(vafl(private(1e-6, clip=100, head_clip=100), *more))
    clear = federate(vafl(*more))
    for member, values in parameters(clear).items():
        assert torch.allclose(parameters(still)[member], values, atol=1e-3)
    assert torch.allclose(still.server.state["weights"], clear.server.state["weights"], atol=1e-3)


@pytest.mark.parametrize("more", BOTH)
def test_side_by_side_too_it_takes_the_steps_of_the_clear_protocol(more: tuple[str, ...]) -> None:
    side = ("federation.protocol.combine=concatenate", *more)
    still = federate(vafl(private(1e-6, clip=100, head_clip=100), *side))
    clear = federate(vafl(*side))
    for member, values in parameters(clear).items():
        assert torch.allclose(parameters(still)[member], values, atol=1e-3)
    assert not torch.allclose(parameters(federate(vafl(private(5.0), *side)))[SERVER], parameters(clear)[SERVER])


def test_messages_to_parties_differ_by_twice_the_clip_under_another_label(
    silence: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One round, and all that it sends or keeps for later responses; the head's norms are found from its step."""
    quiet = ("federation.rounds=1", private(1e-6, 0.05, 0.2, seeded=False), "server.optimiser.lr=1")
    one = federate(vafl(*quiet, "server.optimiser.weight_decay=0", "federation.protocol.weights_lr=1"))
    row = int(one.server.schedule.batch(1)[3])
    true_targets = ServerContext.targets

    def lied(ctx: ServerContext, batch: Tensor, logits: Tensor) -> Tensor:
        labels = true_targets(ctx, batch, logits).clone()
        labels[batch == row] = (labels[batch == row] + 1) % 10
        return labels

    monkeypatch.setattr(ServerContext, "targets", lied)
    two = federate(vafl(*quiet, "server.optimiser.weight_decay=0", "federation.protocol.weights_lr=1"))
    rows = len(one.server.schedule.batch(1))
    for party, theirs in sent(two).items():
        apart = rows * (sent(one)[party] - theirs)
        assert 0.05 < apart.norm() <= 2 * 0.05 * (1 + 1e-4)
        assert apart.any(dim=1).nonzero().flatten().tolist() == [3]
    learned, other = (torch.cat([parameters(o)[SERVER], o.server.state["weights"].detach()]) for o in (one, two))
    moved = rows * (learned - other)
    assert 0.1 < moved.norm() <= 2 * 0.2 * (1 + 1e-3)


def test_the_noise_that_arrives_has_the_deviation_that_was_asked_for() -> None:
    outcome = federate(vafl(private(20, clip=0.1, seeded=False), "federation.protocol.embedding=64"))
    dh = [len(m.dh) * m.dh for _, _, m in outcome.messages if isinstance(m, Gradient)]
    noise = torch.cat([part.flatten() for part in dh]).double()
    # A row clipped to C adds at most C^2 to the sum of squares, C^2 / 64 an entry; sigma^2 C^2 is 25,600 times that.
    assert noise.numel() > 400_000 and noise.std().item() == pytest.approx(20 * 0.1, rel=0.01)


def test_a_row_pays_for_every_response_and_every_step_together() -> None:
    outcome = federate(vafl(private(), "federation.rounds=18"))  # three epochs of six rounds
    spent = outcome.server.releases
    assert spent is not None and spent.most == 3 * (4 + 1)
    train = outcome.server.schedule.partition.train
    assert (spent.counted[train] == 15).all() and spent.counted.sum() == 15 * len(train)


def test_asynchronously_a_row_pays_for_one_response_and_one_step_an_exchange() -> None:
    def uneven(sender: str, _to: str, item: object) -> float:
        return 0.1 * int(sender[-1]) if sender != SERVER and isinstance(item, Embedding) else 0.001

    outcome = federate(vafl(private(), COME), delay=uneven)
    expected = torch.zeros(1797, dtype=torch.int64)
    for party, ctx in outcome.clients.items():
        answered = sum(to == party and isinstance(m, Gradient) for _, to, m in outcome.messages)
        assert answered == ctx.state["turns"]["done"]
        for turn in range(1, answered + 1):
            expected[outcome.server.schedule.batch(turn)] += 2
    assert torch.equal(outcome.server.releases.counted, expected)


def test_an_absent_party_is_sent_nothing_and_costs_nothing() -> None:
    lost = late("party4")
    outcome = federate(vafl(private(), "federation.quorum={need: 3}", "federation.rounds=1"), delay=lost)
    assert outcome.server.releases.most == 3 + 1


def test_a_rollback_takes_nothing_back() -> None:
    """A session that begins anew goes on counting: the context's counts are not in the state."""
    cfg = vafl(private(seeded=False))
    outcome = federate(cfg, save=True)
    outcome.server.restore(3, outcome.saved[3][SERVER])
    batch = outcome.server.schedule.batch(1)  # of rounds 1 and 7
    assert outcome.server.releases.counted[batch].tolist() == [10] * len(batch)
    private_again = outcome.server.protection(torch.nn.Linear(2, 2))
    private_again.rows(torch.zeros(len(batch), 2), batch)
    assert outcome.server.releases.counted[batch].tolist() == [11] * len(batch)


def test_a_mean_over_rows_is_clipped_by_rows_and_has_its_noise_divided(silence: None) -> None:
    server = federate(vafl(private(1e-6, clip=0.5, seeded=False), "federation.rounds=1")).server
    batch = server.schedule.batch(1)[:4]
    values = torch.tensor([[3.0, 4.0], [0.3, 0.0], [-30.0, 0.0], [0.0, 0.4]])
    mean = server.protection(torch.nn.Linear(2, 2)).mean(values, batch)
    assert torch.allclose(mean, torch.tensor([0.3 + 0.3 - 0.5, 0.4 + 0.4]) / 4, atol=1e-6)
    assert server.releases.counted[batch].tolist() == [6] * 4


def test_a_seed_gives_equal_bits_and_a_resumed_run_ends_as_one_that_was_left_alone() -> None:
    cfg = vafl(private())
    alone, again = federate(cfg, save=True), federate(cfg)
    assert all(torch.equal(values, parameters(again)[member]) for member, values in parameters(alone).items())
    resumed = federate(cfg, save=True, start=(3, alone.saved[3]))
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[8][member], alone.saved[8][member])
    assert not torch.equal(parameters(federate(vafl(private(seeded=False))))[SERVER], parameters(alone)[SERVER])


def test_the_summary_reports_the_total() -> None:
    said = response_noise_summary(federate(vafl(private(seeded=False))).server)
    assert said["releases"] == 10 and said["void"] is None and said["adjacency"] == "replace"
    assert said["epsilon"] == pytest.approx(epsilon(10, 5.0, 1e-6, "replace"))
    said = response_noise_summary(federate(vafl(private())).server)
    assert said["epsilon"] is None and "seed" in said["void"] and said["accounted"] > 0
    assert response_noise_summary(federate(vafl()).server) is None


def test_a_head_in_which_rows_meet_is_refused() -> None:
    with pytest.raises(InputError, match=r"^server\.head: layer head\.1 is a batch norm"):
        federate(vafl(private(), "server.head=normed"))


@pytest.mark.parametrize("name", sorted(set(PROTOCOLS).difference(ABLE)))
def test_every_other_protocol_refuses_it(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^server\.privacy\.answers: in {name} what goes back"):
        config(PROTOCOLS[name], private())
