"""VFedMH against all models in one process, and against a dishonest server or parties."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade.common.aggregation.messages import AGREEMENT, Masked, Members
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.protocols.vfedmh import CONTRACT, Embedding, Evaluation, Global, Gradient, Prediction
from tests.support.altered_lines import change_each
from tests.support.federation import Outcome, config, federate, late, parameters

pytestmark = pytest.mark.slow

ROUNDS = ("federation.rounds=6", "federation.epochs=0", "every_party.optimiser.lr=0.1")
WIDTH = 16
EXCHANGED = {Global, Prediction, Gradient}


def run(*sets: str, aggregate: str = "blinded", **how) -> Outcome:
    protocol = {"name": "vfedmh", "embedding": WIDTH, "aggregate": aggregate}
    return federate(config(protocol, *ROUNDS, *sets), **how)


STILL = (
    "federation.rounds=1",
    "every_party.optimiser.lr=1e-12",
    "every_party.head_optimiser.lr=1e-12",
    "server.optimiser.lr=1e-12",
    "server.active.optimiser.lr=1e-12",
)


class Member:
    """l_k as the paper has it, by autograd: its loss, of which only its own parameters are variables."""

    def __init__(self, bottom: nn.Module, head: nn.Module, step: torch.optim.Optimizer, x: Tensor) -> None:
        self.bottom, self.head, self.step, self.x = bottom, head, step, x

    def learn(self, rows: Tensor, others: Tensor, count: int, y: Tensor) -> float:
        loss = functional.cross_entropy(self.head((self.bottom(self.x[rows]) + others) / count), y)
        self.step.zero_grad()
        loss.backward()
        self.step.step()
        return loss.item()


def members(outcome: Outcome, untouched: Outcome) -> dict[str, Member]:
    """All members' models before the first round."""
    made = {}
    for name, ctx in [(SERVER, untouched.server), *untouched.clients.items()]:
        state = ctx.state
        bottom, head = copy.deepcopy(state["active model" if name == SERVER else "model"]), copy.deepcopy(state["head"])
        columns = outcome.server.columns if name == SERVER else outcome.clients[name].features
        parameters = [
            {"params": [*bottom.parameters()], "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3},
            {"params": [*head.parameters()], "lr": 0.1 if name == SERVER else 0.03, "weight_decay": 1e-3},
        ]
        step = torch.optim.SGD(parameters)
        made[name] = Member(bottom, head, step, columns[torch.arange(1797)])
    return made


@pytest.mark.parametrize("aggregate", ["clear", "blinded"])
def test_it_takes_the_steps_of_everyones_own_loss(aggregate: str) -> None:
    outcome = run(aggregate=aggregate)
    everyone = members(outcome, run(*STILL, aggregate=aggregate))
    for t, event in enumerate(outcome.of_kind("round"), 1):
        rows = outcome.server.schedule.batch(t)
        y = outcome.server.labels[rows]
        with torch.no_grad():
            e = {name: each.bottom(each.x[rows]) for name, each in everyone.items()}
        total = torch.stack(list(e.values())).sum(0)
        losses = {name: each.learn(rows, total - e[name], len(e), y) for name, each in everyone.items()}
        assert event["loss"] == pytest.approx(losses[SERVER], abs=1e-5)
    for name, each in everyone.items():
        state = outcome.server.state if name == SERVER else outcome.clients[name].state
        for ours, theirs in (
            (state["active model" if name == SERVER else "model"], each.bottom),
            (state["head"], each.head),
        ):
            for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
                assert torch.allclose(one, other, atol=1e-5)


def test_the_server_gets_the_exact_sum_of_fixed_point_and_no_partys_part() -> None:
    """Internal values of both sides: the parties' encodings, and the server's decoded sums."""
    clear, blind = run("federation.rounds=1", aggregate="clear"), run("federation.rounds=1")
    mine = ring(blind.server.federation)
    sent = {sender: m.e for sender, _, m in clear.messages if isinstance(m, Embedding)}
    plain = {name: mine.encode(e) for name, e in sent.items()}
    masked = {sender: m.words for sender, _, m in blind.messages if isinstance(m, Masked) and m.stage == 0}
    total = mine.total(torch.stack(list(masked.values())))
    assert not total[-1].any()  # masked zeros
    total = total[:-1]
    assert torch.equal(total, mine.total(torch.stack(list(plain.values()))))
    for name, words in masked.items():
        assert (words[:-1] == plain[name]).float().mean() < 1e-3
    received = [m for _, to, m in blind.messages if isinstance(m, Global) and m.stage == 0 and to == "party1"]
    rows = blind.server.schedule.batch(1)
    own = _first_server_embedding(rows)
    assert received[0].members == 5
    assert torch.equal(received[0].e, (own + mine.decode(total).float()) / 5)


def _first_server_embedding(rows: Tensor) -> Tensor:
    still = run(*STILL)
    with torch.no_grad():
        e: Tensor = still.server.state["active model"](still.server.columns[rows])
    return e


def test_masks_are_fresh_and_the_learned_model_is_the_same() -> None:
    one, two, other = run(), run(), run("federation.seed=1")
    for name, values in parameters(one).items():
        assert torch.equal(values, parameters(two)[name])
        assert not torch.equal(values, parameters(other)[name])
    words = [[m.words for _, _, m in outcome.messages if isinstance(m, Masked)] for outcome in (one, two)]
    assert not any(torch.equal(a, b) for a, b in zip(*words, strict=True))


@pytest.mark.parametrize("aggregate", ["clear", "blinded"])
def test_only_declared_messages_with_exactly_the_declared_bytes(aggregate: str) -> None:
    outcome = run("federation.evaluate.every=6", aggregate=aggregate)
    schedule = outcome.server.schedule
    rows = sum(len(schedule.batch(t)) for t in range(1, 7))
    evaluated = len(schedule.partition.validation) + len(schedule.partition.test)
    own = {Embedding, Evaluation} if aggregate == "clear" else {*AGREEMENT, Members, Masked}
    assert own | EXCHANGED <= set(CONTRACT.messages)
    for name in outcome.clients:
        up = [m for sender, _, m in outcome.messages if sender == name]
        down = [m for _, to, m in outcome.messages if to == name]
        assert {type(m) for m in up + down} == own | EXCHANGED
        values = [
            m.words if isinstance(m, Masked) else m.e for m in up if isinstance(m, Masked | Embedding | Evaluation)
        ]
        lines = len(values) if aggregate == "blinded" else 0  # of zeros, one a message
        assert sum(v.nbytes for v in values) == (rows + evaluated + lines) * WIDTH * 4
        assert sum(m.e.nbytes for m in down if isinstance(m, Global)) == (rows + evaluated) * WIDTH * 4
        assert sum(m.r.nbytes for m in up if isinstance(m, Prediction)) == (rows + evaluated) * 10 * 4
        assert sum(m.dr.nbytes for m in down if isinstance(m, Gradient)) == rows * 10 * 4
        assert sum(m.members.nbytes for m in down if isinstance(m, Members)) == (0 if aggregate == "clear" else 6 * 4)


def test_everyone_learns_with_a_model_and_an_optimiser_of_its_own() -> None:
    outcome = run(
        "federation.rounds=0",
        "federation.epochs=5",
        "federation.batch=64",
        "every_party.head_optimiser={name: sgd, lr: 0.1, momentum: 0.9}",
        "server.optimiser.momentum=0.9",
        "parties.party1.model={name: linear}",
        "parties.party2.optimiser={name: adam, lr: 0.01}",
        "parties.party3.head={name: mlp, hidden: 24, dropout: 0}",
        "parties.party3.optimiser={name: adagrad, lr: 0.05}",
        "parties.party4.head_optimiser={name: adam, lr: 0.01}",
    )
    found = outcome.server.metrics
    assert found["test_accuracy"] > 0.9
    assert all(found[f"test_accuracy_{name}"] > 0.9 for name in outcome.clients)


def test_the_accuracies_are_those_of_everyones_model_on_everyones_columns() -> None:
    outcome = run("federation.evaluate.every=6", aggregate="clear")
    rows, labels = outcome.server.schedule.partition.test, outcome.server.labels
    server = outcome.server
    with torch.no_grad():
        parts = [ctx.state["model"].eval()(ctx.features[rows]) for ctx in outcome.clients.values()]
        e = (server.state["active model"](server.columns[rows]) + torch.stack(parts).sum(0)) / 5
        heads = {"": server.state["head"]} | {f"_{n}": ctx.state["head"] for n, ctx in outcome.clients.items()}
        for name, head in heads.items():
            accuracy = (head(e).argmax(1) == labels[rows]).float().mean().item()
            assert server.metrics[f"test_accuracy{name}"] == pytest.approx(accuracy, abs=0.004)


def test_a_party_that_fails_a_round_is_left_out_of_the_next_ones_and_comes_back() -> None:
    """No embedding of a round is summed twice: rounds that lack a party have no sum."""

    slow = late("party2", Masked, seconds=1.5, rounds=(2,), others=0.001)
    outcome = run("federation.rounds=8", "federation.quorum={need: 3, grace: 1.0}", delay=slow)
    assert [(e["round"], e["party"]) for e in outcome.of_kind("abandoned")] == [(2, "party2")]
    assert [e["round"] for e in outcome.of_kind("skipped")] == [2]
    sets = {m.round: int(m.members.sum()) for _, _, m in outcome.messages if isinstance(m, Members)}
    assert sets == {1: 4, 2: 4, 3: 3, 4: 3, 5: 4, 6: 4, 7: 4, 8: 4}
    shares = {m.round: m.members for _, _, m in outcome.messages if isinstance(m, Global)}
    assert shares == {1: 5, 3: 4, 4: 4, 5: 5, 6: 5, 7: 5, 8: 5}
    sent = [(sender, m.round, m.stage) for sender, _, m in outcome.messages if isinstance(m, Masked)]
    assert len(sent) == len(set(sent))


def test_a_late_prediction_costs_only_its_party_a_step() -> None:
    slow = late("party2", Prediction, seconds=1.5, rounds=range(6), others=0.001)
    outcome = run("federation.quorum={need: 3, grace: 1.0}", delay=slow)
    received = [(to, m.round) for _, to, m in outcome.messages if isinstance(m, Gradient)]
    assert not [to for to, round in received if to == "party2" and round == 1]
    assert {round for to, round in received if to == "party1"} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        (Global, {"stage": 3}, r"Global\.stage: expected 0, got 3"),
        (Global, {"members": 0}, r"Global\.members: expected at least 1, got 0"),
        (Prediction, {"stage": 1}, r"party1.*Prediction\.stage: expected 0, got 1"),
        (Masked, {"stage": 2}, r"party1.*Masked\.stage: expected 0, got 2"),
    ],
)
def test_messages_of_another_place_are_refused(kind: type, change: dict[str, int], reason: str) -> None:
    def tamper(cohort) -> None:
        link = cohort["party1"]
        deliver = link.deliver
        altered = lambda item: replace(item, **change) if type(item) is kind else item  # noqa: E731
        link.deliver = lambda item: deliver(altered(item))
        change_each(link, altered)

    with pytest.raises(ContractError, match=reason):
        run(on_cohort=tamper)


TOWER = """
import torch
class Tower(torch.nn.Module):
    def __init__(self, input_shape, embedding=16):
        super().__init__()
        self.linear = torch.nn.Linear(input_shape[0], embedding)
    def forward(self, x):
        return torch.tanh(self.linear(x))
class Flat(Tower):
    def forward(self, x):
        return super().forward(x).sum(1)
"""


def test_a_tower_of_ones_own_takes_part(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(TOWER)
    outcome = run("parties.party2.model=./tower.py:Tower", base=tmp_path)
    assert type(outcome.clients["party2"].state["model"]).__name__ == "Tower"


@pytest.mark.parametrize(
    ("file", "sets", "reason"),
    [
        (TOWER, ["parties.party2.model=./tower.py:Flat"], r"parties\.party2\.model: .*expected \(2, width\)"),
        (
            "import nothing_like_it",
            ["parties.party2.model=./tower.py:Tower"],
            r"parties\.party2\.model: .*nothing_like_it",
        ),
        (
            TOWER,
            ["parties.party2.model={file: ./tower.py:Tower, embedding: 9}"],
            r"makes 9 numbers of a row, and the protocol takes 16",
        ),
        (
            "",
            ["server.active.model={name: mlp, embedding: 12}"],
            r"server\.active\.model makes 12 numbers of a row, and the protocol takes 16",
        ),
        ("", ["parties.party3.head=./tower.py:Tower"], r"parties\.party3\.head: .*Tower"),
    ],
)
def test_models_that_do_not_fit_are_refused_by_name(tmp_path: Path, file: str, sets: list[str], reason: str) -> None:
    (tmp_path / "tower.py").write_text(file)
    with pytest.raises(ConfigError, match=reason):
        run(*sets, base=tmp_path)


def test_a_server_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"server\.active: missing, and in vfedmh the server has columns of its own"):
        run("server.active=null")


@pytest.mark.parametrize("aggregate", ["clear", "blinded"])
def test_an_evaluation_larger_than_the_connection_holds_comes_to_its_end(aggregate: str) -> None:
    """1257 test rows of 512 numbers are 2.6 MB a party; about 1 MB may be queued."""
    wide = ("federation.protocol.embedding=512", "federation.rows.test=0.7", "federation.rounds=1")
    assert "test_accuracy" in run(*wide, aggregate=aggregate).server.metrics
