"""VFL-CZOFO against Eq. 2 by brute force in float64, in the order in which parties came."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from colonnade.client.protocols import czofo as party_side
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, ContractError, TrainingDiverged
from colonnade.common.models.zeroth_order import Directions
from colonnade.common.protocols.czofo import CONTRACT, Differences, Embedding, Evaluation
from colonnade.server.member.summary import theorem
from colonnade.server.training.context import ServerContext
from tests.support.federation import Outcome, config, federate, first, parameters, uneven

pytestmark = pytest.mark.slow

CZOFO = {"name": "czofo", "embedding": 16, "directions": 6, "mu": 0.01}
ROW, TOGETHER = "federation.protocol.delta=row", "federation.protocol.arrivals=false"
SHORT = ("federation.rounds=8", "federation.epochs=0", "server.head={name: mlp, hidden: 12, dropout: 0}")


def run(*sets: str, **how) -> Outcome:
    return federate(config(CZOFO, *SHORT, *sets), **how)


paced = uneven(Embedding)


def beginning(outcome: Outcome, *sets: str) -> SimpleNamespace:
    """Everything as it was before the first round, with optimisers as the configuration has them; in float64."""
    fresh = federate(config(CZOFO, *SHORT, *sets, "federation.rounds=1", "server.optimiser.lr=1e-12"))
    models = {name: first(ctx).model(16).double() for name, ctx in outcome.clients.items()}
    head = copy.deepcopy(fresh.server.state["head"]).double()
    sgd = {name: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, weight_decay=1e-3) for name, m in models.items()}
    top = torch.optim.SGD(head.parameters(), lr=0.1, weight_decay=1e-3)
    return SimpleNamespace(names=list(outcome.clients), models=models, head=head, sgd=sgd, top=top)


def brute_force(
    joint: SimpleNamespace, name: str, h: list[Tensor], y: Tensor, u: Tensor, *, antithetic: bool = False
) -> tuple[Tensor, Tensor]:
    """delta_i^j / mu (rows, q), and the loss at rest with a graph; one direction after the other."""
    index, mu = joint.names.index(name), CZOFO["mu"]

    def losses(step: Tensor | float) -> Tensor:
        moved = [part + step if place == index else part for place, part in enumerate(h)]
        return functional.cross_entropy(joint.head(torch.cat(moved, 1)), y, reduction="none")

    rest = losses(0.0)
    columns = []
    for j in range(u.shape[1]):
        back = losses(-mu * u[:, j]) if antithetic else rest
        columns.append((losses(mu * u[:, j]) - back) / (2 * mu if antithetic else mu))
    return torch.stack(columns, 1).detach(), rest.mean()


def equation_2(delta: Tensor, u: Tensor, phi: float, rowwise: bool) -> Tensor:
    rows, q, _ = u.shape
    out = torch.zeros(rows, u.shape[2], dtype=torch.float64)
    for i in range(rows):
        for j in range(q):
            out[i] += phi / q * (delta[i, j] / rows if rowwise else delta[:, j].mean()) * u[i, j]
    return out


def assert_equal_in_the_end(joint: SimpleNamespace, outcome: Outcome) -> None:
    for name, model in joint.models.items():
        ours = torch.cat([p.flatten() for p in model.parameters()]).float()
        assert torch.allclose(ours, parameters(outcome)[name], atol=2e-5)
    head = torch.cat([p.flatten() for p in joint.head.parameters()]).float()
    assert torch.allclose(head, parameters(outcome)[SERVER], atol=2e-5)


@pytest.mark.parametrize(
    ("draw", "delta"),
    [("sphere", "batch"), ("sphere", "row"), ("normal", "row"), ("signs", "batch"), ("orthogonal", "row")],
)
def test_every_turn_is_eq_2_with_the_parameters_before_the_servers_step(draw: str, delta: str) -> None:
    """Replayed from the order in which the server answered: a table of last embeddings, q losses, autograd."""
    antithetic = draw == "signs"
    how = f"{{name: czofo, embedding: 16, directions: 6, mu: 0.01, delta: {delta}, draw: {draw}"
    protocol = f"federation.protocol={how}, antithetic: {str(antithetic).lower()}}}"
    sets = (protocol, "federation.evaluate.every=8", "federation.batch=48")
    outcome = run(*sets, delay=paced)
    joint = beginning(outcome, *sets)
    last = {name: torch.zeros(len(outcome.server.labels), 16, dtype=torch.float64) for name in joint.names}
    answers = [(to, m) for _, to, m in outcome.messages if isinstance(m, Differences)]
    assert len(answers) == 8 * 4
    done, zeta = dict.fromkeys(joint.names, 0), 0.0
    directions = Directions(0, draw, 6, 16)  # type: ignore[arg-type]
    for name, answer in answers:
        done[name] += 1
        rows = outcome.server.schedule.batch(done[name])
        h = joint.models[name](outcome.clients[name].features[rows].double())
        last[name][rows] = h.detach()
        u = directions.of(name, done[name], len(rows)).u.double()
        parts = [last[other][rows].clone().requires_grad_() for other in joint.names]
        found, loss = brute_force(joint, name, parts, outcome.server.labels[rows], u, antithetic=antithetic)
        expected = found if delta == "row" else found.mean(0, keepdim=True)
        assert torch.allclose(answer.delta.double(), expected, rtol=2e-3, atol=2e-4)
        joint.top.zero_grad()
        loss.backward()
        zeta = max(zeta, float((parts[joint.names.index(name)].grad * len(rows)).norm(dim=1).max()))
        joint.sgd[name].zero_grad()
        h.backward(equation_2(found, u, directions.factor, delta == "row"))
        joint.top.step()
        joint.sgd[name].step()
    assert_equal_in_the_end(joint, outcome)
    assert done["party1"] > done["party2"] > done["party4"] >= 1
    assert outcome.server.state["theorem"]["turns"] == 32
    assert abs(outcome.server.state["theorem"]["zeta"] - zeta) < 1e-4 * zeta


def test_together_all_parties_are_perturbed_around_the_same_point() -> None:
    outcome = run(TOGETHER, ROW, "federation.evaluate.every=8", "federation.protocol.combine=average")
    rows = outcome.server.schedule.batch(1)
    joint = beginning(outcome, TOGETHER, ROW, "federation.protocol.combine=average")
    h = [joint.models[name](outcome.clients[name].features[rows].double()).detach() for name in joint.names]
    first = {to: m for _, to, m in outcome.messages if isinstance(m, Differences) and m.round == 1}
    for name, answer in first.items():
        u = Directions(0, "sphere", 6, 16).of(name, 1, len(rows)).u.double()
        averaged = SimpleNamespace(names=joint.names, head=lambda side: joint.head(side.view(len(rows), 4, 16).mean(1)))
        found, _ = brute_force(averaged, name, h, outcome.server.labels[rows], u)
        assert torch.allclose(answer.delta.double(), found, rtol=1e-3, atol=1e-5)
    assert set(first) == set(joint.names)


def test_only_an_evaluation_waits_for_a_slow_party() -> None:
    def slow(sender: str, _to: str, item: object) -> float:
        return 0.0 if not isinstance(item, Embedding) else 10.0 if sender == "party2" else 0.1

    outcome = run("federation.rounds=24", "federation.evaluate.every=12", delay=slow)
    assert 20 <= outcome.seconds < 25
    assert outcome.clients["party2"].state["turns"]["done"] == 2
    pace = outcome.of_kind("pace")[-1]["parties"]
    assert pace["party2"]["turns"] == 2 and pace["party1"]["turns"] > 24
    assert pace["party2"]["staleness"] is None or pace["party2"]["staleness"] > pace["party1"]["staleness"]
    assert sum(party["turns"] for party in pace.values()) == 24 * 4


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_bound_on_staleness_holds_parties_ahead_of_the_slowest(ahead: int) -> None:
    bound = f"federation.protocol.ahead={ahead}"
    outcome = run(bound, "federation.rounds=12", "federation.evaluate.every=12", delay=paced)
    order = [to for _, to, m in outcome.messages if isinstance(m, Differences)]
    served = dict.fromkeys(outcome.clients, 0)
    widest = 0
    for to in order[:-4]:  # the final evaluation takes an exchange of every party
        served[to] += 1
        widest = max(widest, max(served.values()) - min(served.values()))
    assert widest == ahead + 1
    assert len(order) == 48


def test_staleness_follows_from_the_order_of_exchanges() -> None:
    outcome = run("federation.evaluate.every=8", "federation.batch=300", delay=paced)
    since: dict[str, dict[int, int]] = {name: {} for name in outcome.clients}
    ages: dict[str, list[int]] = {name: [] for name in outcome.clients}
    done = dict.fromkeys(outcome.clients, 0)
    order = [to for _, to, m in outcome.messages if isinstance(m, Differences)]
    for now, name in enumerate(order, 1):
        done[name] += 1
        rows = outcome.server.schedule.batch(done[name]).tolist()
        for other, came in since.items():
            if other != name:
                ages[other] += [now - came[row] for row in rows if row in came]
        since[name].update(dict.fromkeys(rows, now))
    for name, party in outcome.of_kind("pace")[-1]["parties"].items():
        expected = round(sum(ages[name]) / len(ages[name]), 2) if ages[name] else None
        assert party == {"turns": done[name], "staleness": expected}


def test_a_resumed_run_goes_on_to_the_end() -> None:
    cfg = config(CZOFO, *SHORT, "federation.evaluate.every=4")
    alone = federate(cfg, save=True, delay=paced)
    for round in (1, 4, 6):
        resumed = federate(cfg, save=True, start=(round, alone.saved[round]), delay=paced)
        assert [e["round"] for e in resumed.of_kind("round")] == list(range(round + 1, 9))
        assert sum(ctx.state["turns"]["done"] for ctx in resumed.clients.values()) == 8 * 4


def test_the_same_order_gives_the_same_bits() -> None:
    few = "federation.compress={up: 4, down: 2}"
    one, two, other = run(few, delay=paced), run(few, delay=paced), run(few, "federation.seed=1", delay=paced)
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])
        assert not torch.equal(values, parameters(other)[name])


@pytest.mark.parametrize("bits", [32, 8, 4, 2, 1])
def test_only_declared_messages_with_exactly_the_declared_bytes(bits: int) -> None:
    for delta in ("batch", "row"):
        few = f"federation.compress={{up: {bits}, down: {bits}}}"
        short = ("federation.rounds=2", "federation.evaluate.every=2", "federation.batch=64")
        outcome = run(few, f"federation.protocol.delta={delta}", *short)
        assert {type(m) for _, _, m in outcome.messages} == set(CONTRACT.messages)
        for _, _, message in outcome.messages:
            if isinstance(message, Evaluation):
                continue
            name = "h" if isinstance(message, Embedding) else "delta"
            entries = 64 * 16 if name == "h" else 6 if delta == "batch" else 64 * 6
            if bits == 32:
                assert getattr(message, name).nbytes == 4 * entries
            else:
                assert message.packed[name].data.nbytes == -(-entries * bits // 8)


def test_other_directions_at_the_other_end_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Others(Directions):
        def __init__(self, seed: int, *rest) -> None:
            super().__init__(seed + 1, *rest)

    monkeypatch.setattr(party_side, "Directions", Others)
    with pytest.raises(ContractError, match=r"Differences.mark.*it drew others"):
        run()


def test_a_vector_of_another_length_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from colonnade.server.protocols import czofo as server_side

    def short(t: int, mark: int, delta: Tensor) -> Differences:
        return Differences(t, mark, delta[:, :5])

    monkeypatch.setattr(server_side, "Differences", short)
    with pytest.raises(ContractError, match=r"server.*Differences.delta.*directions = 6.*\(1, 5\)"):
        run()


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    with pytest.raises(TrainingDiverged, match=r"its head is not finite|the loss is (nan|inf)"):
        run("server.optimiser.lr=1e30", "federation.rounds=20")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("mu=0", "federation.protocol.mu"),
        ("mu=-0.1", "federation.protocol.mu"),
        ("mu=.nan", "federation.protocol.mu"),
        ("directions=0", "federation.protocol.directions"),
        ("draw=cube", "federation.protocol.draw"),
        ("ahead=-1", "federation.protocol.ahead"),
    ],
)
def test_wrong_values_are_refused_with_their_key(wrong: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        config(CZOFO, f"federation.protocol.{wrong}")


def test_conflicting_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 16"):
        config(CZOFO, "federation.protocol.draw=orthogonal", "federation.protocol.directions=17")
    with pytest.raises(ConfigError, match="needs asynchronous rounds"):
        config(CZOFO, TOGETHER, "federation.protocol.ahead=3")
    with pytest.raises(ConfigError, match="as many releases as they like"):
        config(CZOFO, "federation.privacy={clip: 1, epsilon: 8}")


def test_a_turn_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(party_side, "Embedding", lambda t, _turn, h: Embedding(t, 0, h))
    with pytest.raises(ContractError, match=r"Embedding.turn.*at least 1"):
        run()


def private(sigma: float, clip: float = 0.1, *, seeded: bool = True) -> str:
    how = f"clip: {clip}, head_clip: {clip}, noise_multiplier: {sigma:f}, delta: 1.0e-5, seeded: {str(seeded).lower()}"
    return f"server.privacy.answers={{{how}}}"


@pytest.mark.parametrize("delta", ["batch", "row"])
def test_with_wide_clips_and_almost_no_noise_protected_responses_equal_the_clear_ones(delta: str) -> None:
    sets = (f"federation.protocol.delta={delta}", "federation.evaluate.every=8", "every_party.optimiser.lr=0.005")
    still, clear = run(private(1e-6, clip=100), *sets), run(*sets)
    for member, values in parameters(clear).items():
        assert torch.allclose(parameters(still)[member], values, atol=2e-3)
    assert still.server.releases is not None and still.server.releases.most == 4 * 2 * 2  # two epochs begun


@pytest.mark.parametrize("delta", ["batch", "row"])
def test_another_label_moves_responses_by_no_more_than_twice_the_clip(
    delta: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer to every party, without the noise: nothing else of it depends on the label."""
    monkeypatch.setattr(
        "colonnade.server.privacy.secure_normals", lambda shape: torch.zeros(shape, dtype=torch.float64)
    )
    sets = (TOGETHER, "federation.rounds=1", f"federation.protocol.delta={delta}", private(1e-6, 0.05, seeded=False))
    one = run(*sets)
    rows = one.server.schedule.batch(1)
    true_targets = ServerContext.targets

    def lied(ctx: ServerContext, batch: Tensor, logits: Tensor) -> Tensor:
        labels = true_targets(ctx, batch, logits).clone()
        labels[batch == int(rows[3])] = (labels[batch == int(rows[3])] + 1) % 10
        return labels

    monkeypatch.setattr(ServerContext, "targets", lied)
    two = run(*sets)
    theirs = {to: m.delta for _, to, m in two.messages if isinstance(m, Differences)}
    for to, answer in ((to, m.delta) for _, to, m in one.messages if isinstance(m, Differences)):
        apart = answer - theirs[to]
        if delta == "row":
            assert apart.any(dim=1).nonzero().flatten().tolist() == [3]
            assert 0.01 < apart.norm() <= 0.1 * (1 + 1e-4)
        else:
            assert 0.01 < len(rows) * apart.norm() <= 0.1 * (1 + 1e-4)


def test_the_noise_has_the_deviation_that_was_asked_for() -> None:
    outcome = run(private(50, clip=0.1, seeded=False), ROW, "federation.protocol.directions=60")
    noise = torch.cat([m.delta.flatten() for _, _, m in outcome.messages if isinstance(m, Differences)]).double()
    assert noise.numel() > 400_000 and noise.std().item() == pytest.approx(50 * 0.1, rel=0.01)


def test_the_summary_has_the_epsilon_of_theorem_4_1() -> None:
    outcome = run("federation.evaluate.every=8")
    measured, said = outcome.server.state["theorem"], theorem(outcome.server)
    n = len(outcome.server.schedule.partition.train)
    expected = 2 * measured["zeta"] * (2 * math.log(1.25e6)) ** 0.5 / (n * (measured["variance"] / 4) ** 0.5)
    assert said["epsilon"] == pytest.approx(expected) and said["turns"] == 32 and said["rows"] == n
    assert "not a guarantee" in said["caveat"]
    assert theorem(run("federation.protocol.theorem=false").server) is None
    assert theorem(run("federation.protocol.directions=1").server) is None
    assert theorem(run(private(1.0)).server) is None  # the summary shows the guarantee instead
