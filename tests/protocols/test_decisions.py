"""Thresholds and recalibration of whole runs: of which rows they are, and of which round's model."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from sklearn.metrics import f1_score

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.parsing.file import parse
from colonnade.common.run.state import State
from colonnade.server.member.planned import planned
from colonnade.server.member.summary import summarise
from colonnade.server.member.traffic import Totals
from colonnade.server.prediction.exchange import Outputs, Questions
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.prediction.run import probabilities
from colonnade.server.training.context import ServerContext
from colonnade.server.training.metrics import decision
from tests.protocols.test_resume import same
from tests.support.federation import NEEDS, Outcome, federate

ISOTONIC = {"decide": {"by": "cost", "false_positive": 1, "false_negative": 4}, "calibrate": "isotonic"}
ROUNDS = 5


def config(server: dict[str, Any], name: str = "split", **federation: Any) -> Config:
    data = {"source": "sklearn", "name": "breast_cancer"}
    agreed = {
        "id": "test", "protocol": name, "parties": 2, "classes": 2, "rounds": ROUNDS, "batch": 100, "shuffle": True,
        "rows": {"validation": 200, "test": 100}, "evaluate": {"every": 1}, **federation,
    }  # fmt: skip
    party = {"data": {**data, "split": "columns"}, "optimiser": {"name": "sgd", "lr": 0.01}, **NEEDS.get(name, {})}
    return parse({"federation": agreed, "server": {"labels": data, **server}, "every_party": party})


def kept(outcome: Outcome, round: int) -> decision.Decision | None:
    record = State(outcome.saved[round][SERVER]).keep("decision", dict[str, Any])
    return decision.read(record) if record else None


@pytest.mark.parametrize("name", ["split", "vimadmm", "fdml", "vfedmh", "local", "centralized"])
def test_every_protocol_decides_by_its_joint_model(name: str) -> None:
    active = {"active": {"data": {"source": "sklearn", "name": "breast_cancer", "split": "columns"}}}
    more = active if name in ("local", "vfedmh") else {}
    found = federate(config({"decide": "f1", **more}, name, parties=4, rounds=1)).server
    assert found.decision is not None and found.decision.rows == 200
    assert found.metrics["test_decided_accuracy"] > 0.5
    (true, false), (missed, hits) = found.findings()["test"]["decision"]["confusion"]
    assert true + false + missed + hits == 100 and found.metrics["test_decided_accuracy"] == (true + hits) / 100


@pytest.mark.parametrize("server", [{"decide": "f1"}, ISOTONIC, {"calibrate": "platt"}], ids=str)
def test_a_checkpoint_holds_the_decision_of_its_own_round_and_a_resumed_run_makes_the_same(server: Any) -> None:
    whole = federate(config(server), save=True)
    rounds = [kept(whole, round) for round in range(1, ROUNDS + 1)]
    assert [made and made.round for made in rounds] == [1, 2, 3, 4, 5]
    assert rounds[-1] == whole.server.decision
    resumed = federate(config(server), save=True, start=(2, whole.saved[2]))
    assert same(resumed.saved[ROUNDS][SERVER], whole.saved[ROUNDS][SERVER])
    without = federate(config({}), save=True, start=(2, whole.saved[2]))  # the key was removed meanwhile
    assert without.server.decision is None and kept(without, ROUNDS) is None


@pytest.mark.parametrize("rounds", [ROUNDS, ROUNDS + 2], ids=["no round left", "worse rounds follow"])
def test_a_rule_asked_for_later_is_chosen_for_the_model_that_predicts(rounds: int) -> None:
    stop, slow = {"stop": {"metric": "loss", "patience": 90}}, {"optimiser": {"name": "sgd", "lr": 0.01}}
    plain = federate(config(slow, **stop), save=True)
    asked = config({**ISOTONIC, "optimiser": {"name": "sgd", "lr": 9e4}}, **stop, rounds=rounds)
    later = federate(asked, save=True, start=(ROUNDS, plain.saved[ROUNDS]))
    run, best = later.server, later.server.best.round
    assert (
        0 < best <= ROUNDS
        and run.rule(best) == federate(config({**ISOTONIC, **slow}, **stop, rounds=best)).server.decision
    )
    assert ("test_decided_cost" in run.metrics) == (rounds > ROUNDS or best == ROUNDS)
    whole = summarise(run, Totals(()), "completed", None, seconds=0, saved=best, releases={})
    made = run.rule(best)
    assert made is not None and whole["decision"] == made.summary(run.positive)
    assert whole["details"]["test"]["decision"]["probabilities"] and not list(run.doubts(best))
    run.restore(best, plain.saved[best][SERVER])  # as `predict` does
    assert run.decision == made


def test_a_rule_that_cannot_be_chosen_is_said() -> None:
    plain = federate(config({}, stop=None), save=True)
    short = federate(config({"decide": 0.3, "calibrate": "platt"}, stop=None, rounds=3), start=(3, plain.saved[3]))
    said = [event["reason"] for event in short.of_kind("warning")]
    assert any("server.decide does not apply to the model of round 3" in reason for reason in said)
    assert any("round 3 was not evaluated as the last one" in reason for reason in said)
    with pytest.raises(ConfigError, match="3 rounds are done, and the configuration ends after 2"):
        federate(config({}, rounds=2), start=(3, plain.saved[3]))


def test_no_test_row_takes_part_in_the_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoilt(ctx: ServerContext, labels: torch.Tensor, schedule: Any, weights: Any) -> None:
        labels = labels.clone()
        labels[schedule.partition.test] = 1 - labels[schedule.partition.test]
        take(ctx, labels, schedule, weights)

    server = federate(config(ISOTONIC)).server
    take = ServerContext.take
    monkeypatch.setattr(ServerContext, "take", spoilt)
    other = federate(config(ISOTONIC)).server
    assert other.decision == server.decision is not None
    assert other.metrics["test_decided_accuracy"] == pytest.approx(1 - server.metrics["test_decided_accuracy"])


@pytest.mark.parametrize("server", [{}, {"decide": "f1"}, {"decide": 0.9}, ISOTONIC], ids=str)
def test_predictions_are_of_the_kept_decision(server: dict[str, Any]) -> None:
    ctx = federate(config(server)).server
    logits = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    index: RowIndex = object()  # type: ignore[assignment]  # not asked
    model = Model(
        "run", ROUNDS, index, ctx.classes, True, Questions(), partial(probabilities, ctx), lambda: ctx.decision
    )

    async def asked(_ids: Any) -> Outputs:
        return Outputs(torch.tensor([3, -1, *range(60)]), logits)

    model.questions.ask = asked  # type: ignore[method-assign]
    said = _run(model)
    assert said.known.tolist() == [True, False] + 60 * [True]
    plain = logits.softmax(1).double().numpy()
    if not server:
        assert (said.values[1:] == plain).all() and (said.chosen == said.values.argmax(1)).all()
        return
    made = ctx.decision
    assert made is not None and (said.chosen == (said.values[:, 1] >= made.threshold)).all()
    assert said.values.sum(1) == pytest.approx(1.0)
    assert (said.values[1:] == pytest.approx(plain, abs=1e-6)) == (made.calibration is None)
    if "calibrate" not in server:
        assert (said.chosen != said.values.argmax(1)).any()


def _run(model: Model) -> Any:
    import asyncio

    return asyncio.run(model.predict(["a"]))


def test_the_threshold_is_the_best_of_the_validation_rows() -> None:
    """Independent of the curve's code: by scikit-learn, at every threshold that the curve shows."""
    ctx = federate(config({"decide": "f1"})).server
    assert ctx.decision is not None
    curve = ctx.findings()["validation"]["decision"]["curve"]
    assert ctx.metrics["val_decided_f1"] >= max(point["f1"] for point in curve) - 1e-12
    (true, false), (missed, hits) = ctx.findings()["validation"]["decision"]["confusion"]
    rows = [(0, 0)] * true + [(0, 1)] * false + [(1, 0)] * missed + [(1, 1)] * hits
    assert ctx.metrics["val_decided_f1"] == pytest.approx(f1_score(*zip(*rows, strict=True)))


def test_rows_of_one_class_are_refused_and_few_are_said() -> None:
    few = federate(config({"decide": "f1"}, rows={"validation": 12, "test": 100}))
    said = [event["reason"] for event in few.of_kind("warning")]
    assert any("server.decide: the validation rows have" in reason and "chosen by chance" in reason for reason in said)
    with pytest.raises(DataError, match=r"server\.calibrate: none of the validation rows \(1\) is of the class"):
        federate(config({"calibrate": "platt"}, rows={"validation": 1, "test": 100}))
    assert not federate(config({"decide": 0.4}, rows={"validation": 1, "test": 100})).of_kind("failed")


def test_private_labels_train_as_before_and_the_threshold_is_of_true_validation_labels() -> None:
    private = {"privacy": {"labels": {"epsilon": 8, "seeded": True}}}
    with_it, without = (federate(config({**private, **server})).server for server in ({"decide": "f1"}, {}))
    assert with_it.decision is not None and with_it.decision.rows == 200
    (said,) = [said for said in planned(with_it.federation, with_it.config, with_it.schedule) if "decide" in said.text]
    assert said.weak and "true labels of validation rows, which no noise covers" in said.text
    assert {key: value for key, value in with_it.metrics.items() if "decided" not in key} == without.metrics
