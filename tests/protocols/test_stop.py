"""Early stopping, and the best round. It does not involve the protocols' sides."""

from __future__ import annotations

import pytest

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from tests.protocols.test_resume import PROTOCOLS, same
from tests.support.federation import Outcome, config, federate

pytestmark = pytest.mark.slow

SHORT = ("federation.rounds=12", "federation.epochs=0", "federation.batch=500", "federation.evaluate.every=1")
# Rates at which the validation accuracy goes up and down.
WILD = {"split": 5.0, "vimadmm": 1.0, "vimadmm_j": 1.0}
STOP = "federation.stop={patience: 2, metric: accuracy}"


def settings(name: str, *sets: str) -> Config:
    return config(PROTOCOLS[name], *SHORT, f"every_party.optimiser.lr={WILD[name]}", *sets)


def evaluated(outcome: Outcome, part: str, metric: str = "accuracy") -> list[float]:
    key = f"{'val' if part == 'validation' else 'test'}_{metric}"
    return [event[key] for event in outcome.of_kind("evaluation") if event["part"] == part]


@pytest.mark.parametrize("name", WILD)
def test_a_run_stops_by_its_patience_and_names_its_best_round(name: str) -> None:
    full = federate(settings(name))
    outcome = federate(settings(name, STOP), save=True)
    found, losses = evaluated(full, "validation"), evaluated(full, "validation", "loss")
    assert full.server.round == 12 and not full.of_kind("stopped")
    ranks = [(accuracy, -loss) for accuracy, loss in zip(found, losses, strict=True)]  # the loss decides ties
    bests = [max(ranks[:t]) for t in range(1, 13)]
    end = next((t for t in range(3, 13) if bests[t - 1] == bests[t - 3]), 12)
    assert end < 12, "the rates are too tame for this test"
    assert outcome.server.round == end and [e["round"] for e in outcome.of_kind("stopped")] == [end]
    assert evaluated(outcome, "validation") == found[:end] and len(evaluated(outcome, "test")) == end
    best = outcome.server.best.summary(end - 2)
    tests = {name: evaluated(outcome, "test", name)[end - 3] for name in ("accuracy", "loss")}
    assert best == {
        "round": end - 2, "val_accuracy": max(found[:end]), "val_loss": losses[end - 3], "checkpoint": True,
        **{f"test_{name}": value for name, value in tests.items()},
    }  # fmt: skip


@pytest.mark.parametrize("name", WILD)
def test_a_resumed_run_stops_where_one_that_was_left_alone_does(name: str) -> None:
    cfg = settings(name, STOP)
    alone = federate(cfg, save=True)
    end = alone.server.round
    resumed = federate(cfg, save=True, start=(end - 1, alone.saved[end - 1]))
    assert [event["reason"] for event in resumed.of_kind("stopped")] == [alone.server.stopped]
    assert resumed.server.best == alone.server.best
    for member in (SERVER, *cfg.federation.names):
        assert same(resumed.saved[end][member], alone.saved[end][member])


def test_a_run_that_has_stopped_stays_stopped_unless_it_is_given_more_patience() -> None:
    alone = federate(settings("split", STOP), save=True)
    end = alone.server.round
    again = federate(settings("split", STOP), start=(end, alone.saved[end]))
    assert not again.of_kind("round") and again.server.stopped == alone.server.stopped
    more = settings("split", "federation.stop={patience: 99, metric: accuracy}")
    on = federate(more, start=(end, alone.saved[end]))
    assert on.server.round == 12 and not on.server.stopped


def test_a_run_that_ends_as_its_patience_does_is_not_called_stopped() -> None:
    end = federate(settings("split", STOP)).server.round
    last = federate(settings("split", STOP, f"federation.rounds={end}"))
    assert last.server.round == end and not last.server.stopped and not last.of_kind("stopped")
