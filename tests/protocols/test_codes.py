"""Codes: against an independent computation, over restarts and rewinds, with stragglers, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from colonnade.client.privacy.codes import OwnCodes
from colonnade.client.privacy.mechanisms import Privacy
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import BudgetSpent, CheckpointError, ConfigError, ContractError, InputError
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.sampled import SampledGaussian
from colonnade.common.privacy.codes import DiscretePlan
from colonnade.common.protocols.codes import Beliefs, Codes, Counts, Evaluation, Groups, Labels, Lessons
from colonnade.common.run.state import State
from colonnade.server.protocols import ACTIVE
from tests.protocols.test_prediction import ask
from tests.support.federation import Outcome, config, federate, late

CODES = {"name": "codes", "steps": 20, "drawn": 300, "lr": 30}
PRIVATE = "federation.privacy={mechanism: discrete, epsilon: 6, delta: 1e-4}"
SEEDED = PRIVATE.replace("}", ", seeded: true}")
ONCE = "federation.epochs=1"


def run(*sets: str, **how: Any) -> Outcome:
    return federate(config(CODES, ONCE, *sets), **how)


def sets_of(outcome: Outcome, party: str) -> dict[int, torch.Tensor]:
    """The released set of every row that one party sent one of."""
    found: dict[int, torch.Tensor] = {}
    for sender, _, message in outcome.messages:
        if sender == party and isinstance(message, Codes | Evaluation):
            schedule = outcome.server.schedule
            evaluated = isinstance(message, Evaluation)
            rows = schedule.blocks(message.part)[message.block] if evaluated else schedule.batch(message.round)
            found |= dict(zip(rows.tolist(), message.s, strict=True))
    return found


def test_the_servers_model_is_naive_bayes_over_the_sets() -> None:
    """Oracle: likelihoods by hand, the codes' frequencies at a maximum of the likelihood."""
    outcome = run(SEEDED, "federation.protocol.iterations=400")
    ctx, parties = outcome.server, list(outcome.clients)
    plan, train = ctx.schedule.privacy, ctx.schedule.partition.train
    assert isinstance(plan, DiscretePlan)
    y, tables = ctx.labels.numpy(), ctx.state["confusions"].numpy()
    found = {party: sets_of(outcome, party) for party in parties}
    for place, party in enumerate(parties):
        inside = np.stack([found[party][row].numpy() for row in train.tolist()])
        likelihood = np.where(inside == 1, math.exp(plan.training.epsilon), 1.0)
        for label in range(10):
            own, table = likelihood[y[train] == label], tables[place, label]
            slope = (own / (own @ table)[:, None]).sum(0) + 0.5 / table  # of log-likelihood and prior
            used = table > 1e-3
            assert np.allclose(slope[used], len(own) + 0.5 * len(table), rtol=0.02)
    test = ctx.schedule.partition.test
    log = np.log(ctx.state["class shares"].numpy())[None]
    for place, party in enumerate(parties):
        inside = np.stack([found[party][row].numpy() for row in test.tolist()])
        log = log + np.log(np.where(inside == 1, math.exp(plan.held_out.epsilon), 1.0) @ tables[place].T)
    assert (log.argmax(1) == y[test]).mean() == pytest.approx(ctx.metrics["test_accuracy"], abs=1e-9)


def test_sets_lean_towards_codes_of_the_partys_own_encoder_as_often_as_promised() -> None:
    """The encoder's weights and pixels of the source, multiplied out here; every training row has one set."""
    outcome = run(SEEDED, "federation.privacy.codes=10")
    plan = outcome.server.schedule.privacy
    assert isinstance(plan, DiscretePlan) and plan.codes == 10
    for party, client in outcome.clients.items():
        x = client.features[torch.arange(1797)].numpy().reshape(1797, -1).clip(-3, 3)
        edges = np.array([-1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2.5])
        bins = np.eye(9)[(x[..., None] > edges).sum(-1)].reshape(1797, -1)
        x = np.hstack([np.hstack([x, bins]) / np.sqrt(2 * x.shape[1]), np.full((1797, 1), 0.5)])
        x = x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1)
        codes = (x @ client.state["weights"].numpy()).argmax(1)
        found = sets_of(outcome, party)
        assert len(found) == 1797 and all(int(s.sum()) == plan.training.size for s in found.values())
        for mechanism, rows in (
            (plan.training, outcome.server.schedule.partition.train),
            (plan.held_out, outcome.server.schedule.partition.test),
        ):
            right = np.mean([found[row][codes[row]].item() for row in rows.tolist()])
            assert abs(right - mechanism.kept) < 4 * math.sqrt(mechanism.kept * (1 - mechanism.kept) / len(rows))


def test_it_learns_at_an_epsilon_of_everything_that_a_party_sends() -> None:
    outcome = run(PRIVATE, "federation.privacy.epsilon=10", "federation.protocol.steps=60")
    assert outcome.server.metrics["test_accuracy"] > 0.8
    plan = outcome.server.schedule.privacy
    assert plan is not None and 9.9 < plan.epsilon(1) <= 10 and plan.void is None
    assert {name: privacy.releases for name, privacy in outcome.privacy.items()} == dict.fromkeys(outcome.clients, 1)


def test_epsilon_of_a_row_is_the_sum_and_a_persons_composes_the_steps() -> None:
    plan = Schedule(config(CODES, PRIVATE, "federation.privacy.held_out=3").federation, 1797, 0).privacy
    assert isinstance(plan, DiscretePlan)
    encoder = SampledGaussian(300 / 1294, plan.noise_multiplier, 20)
    assert plan.epsilon(1) == encoder.epsilon(1e-4) + plan.training.epsilon <= 6
    four = SampledGaussian(300 / 1294, plan.noise_multiplier, 80)
    assert plan.person_epsilon([1, 1, 1, 1, 0]) == four.epsilon(1e-4) + 4 * plan.training.epsilon
    assert plan.person_epsilon([1] * 4) < 4 * plan.epsilon(1) and plan.epsilon(0) == plan.person_epsilon([0]) == 0
    held = Schedule(config(CODES, PRIVATE, "federation.privacy.encoder=5").federation, 1797, 0).privacy
    assert held is not None and held.person_epsilon([1, 1]) == pytest.approx(12, rel=1e-6)  # test rows pay most


def test_only_declared_messages_with_exactly_the_declared_bytes() -> None:
    outcome = run(SEEDED)
    schedule, parts = outcome.server.schedule, outcome.server.schedule.partition
    codes, rounds = schedule.privacy.codes, schedule.rounds  # type: ignore[union-attr]
    for name in outcome.clients:
        up = [m for sender, _, m in outcome.messages if sender == name]
        down = [m for _, to, m in outcome.messages if to == name]
        assert {type(m) for m in up} == {Codes, Evaluation} and {type(m) for m in down} == {Lessons, Labels}
        down = [m for m in down if isinstance(m, Labels)]
        assert sum(m.s.nbytes for m in up if isinstance(m, Codes)) == len(parts.train) * codes
        evaluated = len(parts.validation) + len(parts.test)
        assert sum(m.s.nbytes for m in up if isinstance(m, Evaluation)) == evaluated * codes
        assert sum(m.y.nbytes for m in down) == 8 * len(parts.train)
        assert {m.round for m in down} == {1} and [m.block for m in down] == list(range(rounds))
        assert torch.equal(torch.cat([m.y for m in down]), outcome.server.labels[parts.train])


def test_private_labels_are_sent_as_what_their_noise_says() -> None:
    outcome = run("server.privacy.labels={mechanism: subset, epsilon: 3, seeded: true}")
    sent = [m for _, to, m in outcome.messages if to == "party1" and isinstance(m, Beliefs)]
    noisy = outcome.server.noisy
    assert noisy is not None and not [m for *_, m in outcome.messages if isinstance(m, Labels)]
    torch.testing.assert_close(torch.cat([m.y for m in sent]), noisy.evidence().softmax(1).float())
    assert outcome.server.metrics["test_accuracy"] > 0.7


def test_a_straggler_is_taught_again_until_it_answers_and_its_rows_are_told_by_the_others() -> None:
    slow = late("party2", Codes, seconds=2.5, rounds=(1,), others=0.001)
    outcome = run(SEEDED, "federation.quorum={need: 3, grace: 1.0}", delay=slow)
    assert {e["round"] for e in outcome.of_kind("missing") if e["party"] == "party2"} == {1, 2}
    taught = {(to, m.round) for _, to, m in outcome.messages if isinstance(m, Labels)}
    assert taught == {*((name, 1) for name in outcome.clients), ("party2", 2), ("party2", 3)}
    kept = outcome.server.state["sets"][1].any(1)
    assert not kept[outcome.server.schedule.batch(1)].any() and kept[outcome.server.schedule.batch(3)].all()
    assert outcome.server.metrics["test_accuracy"] > 0.5


def test_a_later_epoch_and_a_rewind_send_the_same_sets_and_pay_nothing() -> None:
    cfg = config(CODES, PRIVATE, "federation.epochs=2")
    outcome = federate(cfg)
    for party in outcome.clients:
        found: dict[int, torch.Tensor] = {}
        for sender, _, message in outcome.messages:
            if sender == party and isinstance(message, Codes):
                for row, own in zip(outcome.server.schedule.batch(message.round).tolist(), message.s, strict=True):
                    assert torch.equal(found.setdefault(row, own), own)
        assert outcome.privacy[party].releases == 1


def test_a_prediction_of_a_row_is_its_set_whatever_it_was_drawn_for() -> None:
    """The server asks for training rows, whose sets have less epsilon left: they get no second one."""
    cfg = config(CODES, PRIVATE, ONCE)
    outcome = federate(cfg)
    rows = torch.cat([outcome.server.schedule.partition.train[:50], outcome.server.schedule.partition.test[:50]]).long()
    sent = sets_of(outcome, "party1")
    one, two = ask(cfg, outcome, rows, rows.flip(0))
    assert torch.equal(one, two.flip(0))
    release = outcome.privacy["party1"].stage(State())
    ones = torch.eye(20)[torch.randint(20, (100,))]  # other codes than before
    again = release(ones, evaluation=True, rows=rows)
    assert torch.equal(again.to(torch.uint8), torch.stack([sent[row] for row in rows.tolist()]))


def test_an_aligned_row_is_weighed_by_the_epsilon_that_its_set_was_drawn_with() -> None:
    """Positions of a prediction are others than the run's: training rows have less epsilon for their codes."""
    outcome = run(SEEDED, "federation.privacy.codes=10")
    ctx, cfg = outcome.server, outcome.server.federation.protocol
    train, test = ctx.schedule.partition.train[:20], ctx.schedule.partition.test[:20]
    sets = [torch.eye(10)[torch.randint(10, (40,))] for _ in outcome.clients]
    known = ACTIVE["codes"](ctx, cfg)(torch.cat([train, test])).logits(sets)
    all_trained = ACTIVE["codes"](ctx, cfg)(torch.cat([train, train])).logits(sets)
    assert torch.equal(all_trained[:20], known[:20]) and not torch.allclose(all_trained[20:], known[20:])
    ctx.trained_as = torch.cat([torch.full((20,), -1), train]).__getitem__  # new rows, then those it learned from
    positions = torch.cat([torch.arange(20, 40), torch.arange(20)])
    assert torch.equal(ACTIVE["codes"](ctx, cfg)(positions).logits(sets), known)


def own(folder: Path | None, *sets: str) -> tuple[OwnCodes, DiscretePlan]:
    plan = Schedule(config(CODES, PRIVATE, *sets).federation, 1797, 0).privacy
    assert isinstance(plan, DiscretePlan)
    ledger = None if folder is None else folder / "ledger.jsonl"
    budget = Budget(ledger, 1, 1, noise_multiplier=plan.noise_multiplier)
    return OwnCodes(plan, budget, 1797, None if folder is None else folder / "codes"), plan


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x, dtype=torch.float32)
    return x / x.norm(dim=1, keepdim=True), torch.eye(10, dtype=torch.float64)[torch.tensor(y)]


def reserved(folder: Path) -> int:
    lines = [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]
    return sum(line.get("reserved", 0) for line in lines)


def test_a_restart_finds_encoder_and_sets_and_pays_nothing(tmp_path: Path) -> None:
    codes, plan = own(tmp_path)
    (x, y), train = digits(), torch.arange(1294)
    weights = codes.encoder.train(x[train], y[train], 30.0)
    rows = torch.randperm(1797)[:400]
    first = codes.release(torch.eye(20)[rows % 20], rows=rows)
    again, _ = own(tmp_path)
    assert torch.equal(again.encoder.train(x[train], y[train], 30.0), weights)
    assert torch.equal(again.release(torch.eye(20)[(rows + 3) % 20], rows=rows), first)
    assert reserved(tmp_path) == 1 and first.epsilon == plan.epsilon(1)
    with pytest.raises(CheckpointError, match="other settings"):
        again.encoder.train(x[train], y[train], 31.0)


def test_the_encoder_is_paid_for_on_the_disk_before_its_first_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in the training leaves no weights and no set, and a restart trains anew at no further cost."""
    (x, y), seen = digits(), []

    def crash(*_: object, **_more: object) -> None:
        seen.append((reserved(tmp_path), sorted(path.name for path in (tmp_path / "codes").iterdir())))
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr("colonnade.common.privacy.encoders.LinearEncoder.clipped_sum", crash)
        with pytest.raises(KeyboardInterrupt):
            own(tmp_path)[0].encoder.train(x[:1294], y[:1294], 30.0)
    assert seen == [(1, ["held-out.safetensors", "training.safetensors"])]
    again, _ = own(tmp_path)
    again.encoder.train(x[:1294], y[:1294], 30.0)
    assert reserved(tmp_path) == 1 and (tmp_path / "codes" / "encoder.safetensors").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("lost", ["encoder", "training", "held-out"])
def test_what_is_lost_after_a_set_has_left_is_not_made_again(tmp_path: Path, lost: str) -> None:
    codes, _ = own(tmp_path)
    (x, y), rows = digits(), torch.arange(1797)
    codes.encoder.train(x[:1294], y[:1294], 30.0)
    codes.release(torch.eye(20)[rows % 20], rows=rows)
    (tmp_path / "codes" / f"{lost}.safetensors").unlink()
    before = {path: path.read_bytes() for path in (tmp_path / "codes").iterdir()}
    with pytest.raises(CheckpointError, match="missing"):
        own(tmp_path)[0].encoder.train(x[:1294], y[:1294], 30.0)
    assert {path: path.read_bytes() for path in (tmp_path / "codes").iterdir()} == before


def test_a_ledger_that_paid_for_more_than_the_plan_ends_the_run(tmp_path: Path) -> None:
    plan = own(None)[1]
    budget = Budget(tmp_path / "ledger.jsonl", 1, 1, noise_multiplier=plan.noise_multiplier)
    budget.spend()
    with pytest.raises(BudgetSpent, match="it allowed 1 releases"):
        budget.spend()


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("federation.privacy.codes=1", "one code tells nothing"),
        ("federation.privacy.codes=15", "15 with 10 classes"),
        ("federation.privacy={mechanism: discrete, epsilon: 6, codes: 4, size: 4}", "a set of all 4 codes"),
        ("federation.privacy={mechanism: discrete, epsilon: 6, codes: 4, size: 5}", "a set of all 4 codes"),
        ("federation.privacy.encoder=6", "nothing is left"),
        ("federation.privacy.held_out=6.5", "above epsilon = 6"),
        ("federation.privacy={clip: 1, epsilon: 6}", "not for codes"),
        ("federation.privacy.noise_multiplier=1", "unknown key"),
        ("federation.privacy.epsilon=0", "epsilon"),
        ("federation.protocol.steps=1", "steps"),
    ],
)
def test_wrong_settings_are_refused(sets: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(CODES, PRIVATE, sets)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ("federation.rows.train=300;federation.privacy.codes=310", "more than the 300 training rows"),
        ("federation.privacy.delta=1e-3", "below 1/1797"),
        ("federation.privacy.size=20", "subsets of 20 of 20"),
    ],
)
def test_settings_that_the_rows_do_not_allow_are_refused(sets: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Schedule(config(CODES, PRIVATE, *sets.split(";")).federation, 1797, 0)


def test_other_protocols_refuse_the_mechanism() -> None:
    for name in ("split", "linear_admm", "vfl_afe"):
        with pytest.raises(ConfigError, match="discrete"):
            config({"name": name}, PRIVATE)


@pytest.mark.parametrize(
    ("rule", "match"),
    [
        ("max_row_epsilon: 5.5, max_delta: 1.0e-3", "max_row_epsilon = 5.5"),
        ("max_epsilon: 9", "whose epsilon is one row's"),
        ("min_noise_multiplier: 0.01", "codes have no noise multiplier"),
        ("max_row_epsilon: 9, max_delta: 1.0e-5", "max_delta"),
    ],
)
def test_a_partys_policy_refuses_more_than_it_allows(rule: str, match: str) -> None:
    cfg = config(CODES, PRIVATE, f"parties.party1.policy={{{rule}}}")
    plan = Schedule(cfg.federation, 1797, 0).privacy
    with pytest.raises(ConfigError, match=match):
        Privacy("party1", cfg.federation, cfg.parties["party1"].policy, plan, None)


def test_rows_that_are_not_named_are_not_released() -> None:
    codes, _ = own(None)
    for ones, rows in ((torch.eye(20), None), (torch.eye(19), torch.arange(19)), (torch.eye(20), torch.arange(19))):
        with pytest.raises(InputError, match="expected one of 20 a row"):
            codes.release(ones, rows=rows)
    with pytest.raises(InputError, match="each once"):
        codes.release(torch.eye(20), rows=torch.zeros(20, dtype=torch.int64))


def test_labels_of_a_server_that_lies_are_probabilities_to_the_encoder() -> None:
    """A class outside the agreed ones trains as the last: a row's gradient is clipped whatever it says."""

    def spoil(sender: str, _to: str, item: object) -> float:
        if sender == SERVER and isinstance(item, Labels):
            item.y.fill_(10**6)
        return 0.0

    outcome = run(SEEDED, delay=spoil)
    assert all(ctx.state["weights"].isfinite().all() for ctx in outcome.clients.values())


def test_a_server_that_announces_some_labels_alone_is_refused() -> None:
    def spoil(sender: str, _to: str, item: object) -> float:
        if sender == SERVER and isinstance(item, Lessons):
            object.__setattr__(item, "blocks", 1)
        return 0.0

    with pytest.raises(ContractError, match="0 or 6"):
        run(SEEDED, delay=spoil)


COUNTED = "federation.privacy={mechanism: discrete, epsilon: 6, delta: 1e-4, codes: 4, counts: 0.2}"


def test_classes_are_grouped_by_noisy_counts_that_cost_what_they_say() -> None:
    fixed = run(COUNTED.replace(", counts: 0.2", ", seeded: true"))
    outcome = run(COUNTED.replace("}", ", seeded: true}"))
    plan = outcome.server.schedule.privacy
    assert isinstance(plan, DiscretePlan)
    assert plan.epsilon(1) == max(plan.of_encoder + 0.2 + plan.training.epsilon, plan.held_out.epsilon) <= 6
    assert outcome.server.metrics["test_accuracy"] > fixed.server.metrics["test_accuracy"]
    for place, (party, ctx) in enumerate(outcome.clients.items()):
        (sent,) = [m for sender, _, m in outcome.messages if sender == party and isinstance(m, Counts)]
        (told,) = [m for _, to, m in outcome.messages if to == party and isinstance(m, Groups)]
        assert torch.equal(ctx.state["groups"], told.g) and set(told.g.tolist()) <= {0, 1, 2, 3}
        assert torch.equal(outcome.server.state["groups"][place], told.g)
        true = torch.bincount(outcome.server.labels[outcome.server.schedule.partition.train], minlength=10)
        noise = sent.n.sum(1) - true  # of ten cells of scale 10 each, whatever the encoder names
        assert 0 < noise.abs().float().mean() < 5 * 10 * math.sqrt(2 * 10)


def test_counts_are_drawn_once_over_restarts_and_their_loss_ends_the_run(tmp_path: Path) -> None:
    codes, _ = own(tmp_path, COUNTED)
    x, y = digits()
    codes.encoder.train(x[:1294], y[:1294], 30.0)
    asked = torch.zeros(10, 10, dtype=torch.int64)
    first = codes.release(asked)
    again, _ = own(tmp_path, COUNTED)
    again.encoder.train(x[:1294], y[:1294], 30.0)
    assert torch.equal(again.release(asked), first) and first.mechanism == "laplace 10, counts"
    (tmp_path / "codes" / "counts.safetensors").unlink()
    lost, _ = own(tmp_path, COUNTED)
    lost.encoder.train(x[:1294], y[:1294], 30.0)
    with pytest.raises(CheckpointError, match="counts"):
        lost.release(asked)


def test_groups_that_there_are_not_are_refused_and_counts_without_groups() -> None:
    def spoil(sender: str, _to: str, item: object) -> float:
        if sender == SERVER and isinstance(item, Groups):
            item.g.fill_(4)
        return 0.0

    with pytest.raises(ContractError, match="0 to 3"):
        run(COUNTED, delay=spoil)
    with pytest.raises(ConfigError, match="no groups"):
        Schedule(config(CODES, COUNTED, "federation.privacy.codes=10").federation, 1797, 0)
