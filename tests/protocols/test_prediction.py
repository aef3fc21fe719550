"""Predictions: every protocol's parties answer for a model that is trained, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade.client.prediction import answer, refuse_unknown
from colonnade.client.training.context import ClientContext
from colonnade.common.config.members import Config
from colonnade.common.contracts import prediction
from colonnade.common.contracts.prediction import Ask, Output
from colonnade.common.conversation.conversation import Cohort, Link
from colonnade.common.conversation.inprocess import Delay, connect, run_virtual
from colonnade.common.errors import ContractError, InputError, PartyLost
from colonnade.common.messaging.message import Message, payload_bytes
from colonnade.common.parsing.file import parse
from colonnade.server.prediction.exchange import Questions, distinct_lines, predict
from colonnade.server.prediction.terms import Absent
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

pytestmark = pytest.mark.slow

FEW = (
    "split",
    "fdml",
    "vimadmm",
    "linear_admm",
    "vfedmh",
    "fedvs",
    "codes",
)  # one of each kind of joint model
BLIND = [
    {"name": "secureboost", "gradients": "clear"},
    {"name": "vimadmm_j", "aggregate": "blinded", "update": "signal"},
    {"name": "fdml", "aggregate": "blinded"},
    {"name": "split_avg", "aggregate": "blinded"},
    {"name": "additive", "gradients": "clear"},
    {"name": "hetero_lr"},
]


def ask(
    cfg: Config,
    outcome: Any,
    *questions: Tensor,
    delay: Delay | None = None,
    spoil: Any = None,
    here: tuple[str, ...] = (),
    absent: Absent = "refuse",
    own: bool = False,
) -> list[Tensor]:
    """Outputs of the members of a simulated run for some rows."""

    async def main() -> list[Tensor]:
        federation = prediction.prediction_federation(cfg.federation)
        contract, asked = prediction.contract(cfg.federation), Questions()
        cohort, links = connect(
            list(here or federation.names), contract.kinds, contract.limits_of(federation),
            delay or (lambda _from, _to, _item: 0.0), enough=lambda: asked.over,
        )  # fmt: skip
        server = replace(outcome.server, federation=federation)
        halves = [
            asyncio.ensure_future(answer(_party(ctx, federation, outcome.server.round), links[n]))
            for n, ctx in outcome.clients.items()
            if n in links
        ]
        if spoil is not None:
            spoil(cohort, links)
        serving = asyncio.ensure_future(predict(server, cohort, asked, _positions, absent, own=own))
        answers = asyncio.gather(*(_outputs(asked, rows) for rows in questions))
        await asyncio.sleep(0)  # until they are requested
        asked.close()
        everyone = [serving, *halves]
        try:
            done, _ = await asyncio.wait([serving, *halves], return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            return await answers
        finally:
            answers.cancel()
            for task in everyone:
                task.cancel()
            await asyncio.gather(*everyone, answers, return_exceptions=True)

    return run_virtual(main())


def _party(ctx: ClientContext, federation: Any, round: int) -> ClientContext:
    return replace(ctx, federation=federation, round=round, keyed=lambda _keys: None)


async def _outputs(asked: Questions, rows: Tensor) -> Tensor:
    answer = await asked.ask(map(str, rows.tolist()))
    return answer.outputs[answer.lines]


def _positions(ids: Sequence[str]) -> Tensor:
    """Numbers as they are, and -1 for those that only the server knows."""
    return torch.tensor([int(id) if id.lstrip("-").isdigit() else -1 for id in ids])


def _accuracy(outcome: Any, rows: Tensor, logits: Tensor) -> float:
    return float((logits.argmax(1) == outcome.server.labels[rows]).double().mean())


@pytest.mark.parametrize(
    "protocol", [*({"name": name} for name in FEW), *BLIND], ids=lambda p: "-".join(map(str, p.values()))
)
def test_predictions_for_the_test_rows_equal_the_runs_own_evaluation(protocol: dict[str, Any]) -> None:
    quiet = ["federation.privacy.noise_multiplier=0.0001"] if protocol["name"] == "vfl_afe" else []
    cfg = config(
        protocol, "federation.epochs=1", *quiet, *("federation.protocol.steps=20",) * (protocol["name"] == "codes")
    )
    outcome = federate(cfg)
    rows = outcome.server.schedule.partition.test
    (logits,) = ask(cfg, outcome, rows)
    close = 0.01 if protocol["name"] in ("vfl_afe", "fedvs") else 1e-9  # noise, or a fixed point
    assert abs(_accuracy(outcome, rows, logits) - outcome.server.metrics["test_accuracy"]) <= close


def test_questions_are_answered_one_by_one_and_in_their_order() -> None:
    cfg = config({"name": "split"}, "federation.epochs=1")
    outcome = federate(cfg)
    first, second = torch.tensor([5, 3, 99]), torch.tensor([7])
    both = ask(cfg, outcome, torch.cat([first, second]))[0]
    apart = ask(cfg, outcome, first, second)
    torch.testing.assert_close(torch.cat(apart), both)


def test_repeated_rows_have_lines_of_their_own() -> None:
    cfg = config({"name": "split"}, "federation.epochs=1")
    outcome = federate(cfg)
    apart = ask(cfg, outcome, torch.tensor([7]), torch.tensor([5]))
    both = ask(cfg, outcome, torch.tensor([7, 5, 7, 7]))[0]
    torch.testing.assert_close(both, torch.cat([apart[0], apart[1], apart[0], apart[0]]))


def test_lines_are_of_ascending_rows_each_once() -> None:
    rows, lines = distinct_lines(torch.tensor([9, -1, 4, 9, -1]))
    assert rows.tolist() == [4, 9] and lines.tolist() == [1, -1, 0, 1, -1]
    rows, lines = distinct_lines(torch.tensor([-1, -1]))
    assert rows.tolist() == [] and lines.tolist() == [-1, -1]


def test_a_straggler_is_waited_for() -> None:
    cfg = config({"name": "vimadmm"}, "federation.epochs=1", "federation.quorum={fastest: 2}")
    outcome = federate(cfg)
    slow: Delay = lambda sender, _to, item: 30.0 if sender == "party1" and isinstance(item, Message) else 0.0  # noqa: E731
    rows = torch.arange(10)
    torch.testing.assert_close(ask(cfg, outcome, rows, delay=slow), ask(cfg, outcome, rows))


def test_a_silent_party_is_named() -> None:
    cfg = config({"name": "vimadmm"}, "federation.epochs=1")
    outcome = federate(cfg)
    silent: Delay = lambda sender, _to, item: 1e6 if sender == "party2" and isinstance(item, Message) else 0.0  # noqa: E731
    with pytest.raises(PartyLost, match="party2"):
        ask(cfg, outcome, torch.arange(10), delay=silent)


def test_a_party_refuses_rows_that_there_are_not() -> None:
    cfg = config({"name": "split"}, "federation.epochs=1")
    outcome = federate(cfg)
    with pytest.raises(ContractError, match="1797"):
        ask(cfg, outcome, torch.tensor([1797]))
    with pytest.raises(ContractError, match="-1"):
        refuse_unknown(Ask(1, False, torch.tensor([3, -1])), 10)
    with pytest.raises(ContractError, match=r"server sent Ask.rows: expected one row or more, got none"):
        refuse_unknown(Ask(1, False, torch.tensor([], dtype=torch.int64)), 10)


def test_a_party_refuses_the_same_row_twice() -> None:
    with pytest.raises(ContractError, match="1 of them again"):
        refuse_unknown(Ask(1, False, torch.tensor([4, 4])), 10)


def test_only_the_question_and_the_outputs_cross_the_wire() -> None:
    cfg = config({"name": "vimadmm"}, "federation.epochs=1")
    outcome = federate(cfg)
    seen: list[Message] = []

    def listen(cohort: Cohort, links: dict[str, Link]) -> None:
        for link in (*cohort.values(), *links.values()):
            change_each(link, note)

    def note(item: Any) -> Any:
        if isinstance(item, Message):
            seen.append(item)
        return item

    ask(cfg, outcome, torch.arange(10), spoil=listen)
    width = cfg.federation.protocol.embedding
    assert {type(message) for message in seen} == {Ask, Output}
    assert sum(map(payload_bytes, seen)) == 4 * (10 * 8 + 10 * width * 4)


def test_models_without_a_declared_joint_model_cannot_predict() -> None:
    cfg = config({"name": "centralized"})
    with pytest.raises(InputError, match="centralized cannot be asked"):
        prediction.contract(cfg.federation)


@pytest.mark.parametrize("protocol", ["split", "vimadmm", "vafl"])
def test_imputing_an_absent_party_by_the_mean_costs_the_reported_accuracy(protocol: str) -> None:
    cfg = config({"name": protocol}, "federation.epochs=3")
    outcome = federate(cfg)
    rows, names = outcome.server.schedule.partition.validation, cfg.federation.names
    for gone in names[:2]:
        here = tuple(name for name in names if name != gone)
        (logits,) = ask(cfg, outcome, rows, here=here, absent="mean")
        assert _accuracy(outcome, rows, logits) == pytest.approx(outcome.server.absent[gone])
    assert outcome.server.absent[names[0]] <= outcome.server.metrics["val_accuracy"] + 0.05


def test_the_mean_of_a_straggler_is_of_the_newest_evaluation_that_it_was_in() -> None:
    cfg = config({"name": "vimadmm", "missing": "zero"}, "federation.epochs=2", "federation.quorum={fastest: 1}")
    rounds = cfg.federation.epochs and federate(cfg).server.round
    straggler, begun = cfg.federation.names[1], rounds // 2

    def delay(sender: str, _to: str, item: Any) -> float:
        return 100.0 if sender == straggler and getattr(item, "round", 0) > begun else 0.0

    outcome = federate(cfg, delay)
    assert straggler not in outcome.server.absent
    (logits,) = ask(
        cfg, outcome, outcome.server.schedule.partition.validation, here=cfg.federation.names[:1], absent="mean"
    )
    assert logits.isfinite().all()


def test_an_absent_party_is_imputed_by_its_last_output_for_the_row() -> None:
    cfg = config({"name": "vimadmm", "missing": "last"}, "federation.epochs=3")
    outcome = federate(cfg)
    trained, names = outcome.server.schedule.partition.train[:200], cfg.federation.names
    new = outcome.server.schedule.partition.test[:50]
    whole = ask(cfg, outcome, trained)[0]
    by_history, by_mean = (
        ask(cfg, outcome, trained, new, here=names[1:], absent=how) for how in ("historical", "mean")
    )
    assert (by_history[0] - whole).norm() < (by_mean[0] - whole).norm()
    torch.testing.assert_close(by_history[1], by_mean[1])  # rows never requested have no history


def test_without_a_history_nothing_is_made_up() -> None:
    cfg = config({"name": "vimadmm", "missing": "zero"}, "federation.epochs=1")
    outcome = federate(cfg)
    with pytest.raises(InputError, match="kept nothing that party1 has said"):
        ask(cfg, outcome, torch.arange(3), here=cfg.federation.names[1:], absent="historical")


def test_parties_of_vfedmh_predict_by_themselves_as_well_as_they_did_in_training() -> None:
    cfg = config({"name": "vfedmh", "embedding": 16}, "federation.epochs=2")
    outcome = federate(cfg)
    rows, kept = outcome.server.schedule.partition.test, dict[str, Tensor]()
    for name, ctx in outcome.clients.items():
        ctx.keep = lambda _rows, values, name=name: kept.__setitem__(name, values)
    ask(cfg, outcome, rows, own=True)
    for name in cfg.federation.names:
        said = outcome.server.metrics[f"test_accuracy_{name}"]
        assert _accuracy(outcome, rows, kept[name]) == pytest.approx(said, abs=0.01)  # sums are of fixed points


def test_a_party_without_a_model_of_its_own_is_not_asked_for_one() -> None:
    cfg = config({"name": "split"}, "federation.epochs=1")
    outcome = federate(cfg)
    with pytest.raises(InputError, match="cannot predict by themselves"):
        ask(cfg, outcome, torch.arange(3), own=True)


@pytest.mark.parametrize("name", ["additive", "hetero_lr", "scorecard"])
def test_one_score_a_row_predicts_two_classes(name: str) -> None:
    source = {"source": "sklearn", "name": "breast_cancer"}
    cfg = parse({
        "federation": {
            "id": "cells", "parties": 3, "rounds": 4, "batch": 64, "seed": 0, "stop": "none", "classes": 2,
            "protocol": name, "evaluate": {"every": 4},
        },
        "server": {"labels": source},
        "every_party": {"data": {**source, "split": "columns"}},
    })  # fmt: skip
    outcome = federate(cfg)
    rows = outcome.server.schedule.partition.test
    (logits,) = ask(cfg, outcome, rows)
    assert logits.shape == (len(rows), 2)
    assert abs(_accuracy(outcome, rows, logits) - outcome.server.metrics["test_accuracy"]) <= 1e-9
