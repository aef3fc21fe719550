"""Early stopping, by default and configured, and the best round. It does not involve the protocols' sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import Config
from colonnade.common.config.run_options import StopConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import CheckpointError
from colonnade.common.parsing.dump import config_tree
from colonnade.common.parsing.earlier_defaults import as_begun, with_defaults_before
from colonnade.common.parsing.file import load, parse
from colonnade.common.run.checkpoints import Checkpoints, model_round
from colonnade.common.run.json_text import sealed, unsealed
from colonnade.common.run.run_folder import MemberFolder, PartyFolder, RunFolder
from colonnade.reports.console.summary import best_of_stopped, metric_rows
from colonnade.server.prediction.run import PredictionRun
from colonnade.server.training.metrics.best import Best
from colonnade.simulation.folder import simulate_in
from tests.protocols.test_resume import PROTOCOLS, same
from tests.support.federation import Outcome, config, federate, tree

NOISE = {"mechanism": "gaussian", "clip": 1, "epsilon": 4, "delta": 1e-5}
ROWS = {"validation": 100, "test": 100, "train": 200}


def of(**federation: Any) -> dict[str, Any]:
    """The digits; `stop` is left out unless it is given."""
    made = tree({"name": "split"}, **{"batch": 100, "epochs": 12, "rows": ROWS, **federation})
    if "stop" not in federation:
        del made["federation"]["stop"]
    return made


def agreed(**federation: Any) -> FederationConfig:
    return parse(of(**federation)).federation


def wild(**federation: Any) -> dict[str, Any]:
    """Rates at which the validation accuracy goes up and down."""
    made = of(**federation)
    made["every_party"]["optimiser"] = {"name": "sgd", "lr": 5.0}
    return made


def simulated(made: dict[str, Any], folder: Path) -> dict[str, Any]:
    folder.mkdir()
    simulate_in(parse(made), Path(), folder)
    return dict(json.loads((folder / "summary.json").read_text()))


def test_it_is_on_where_there_are_validation_rows_and_costs_no_privacy() -> None:
    assert agreed().stop == StopConfig()
    assert agreed(rows={"validation": 0}).stop is None
    assert agreed(privacy=NOISE).stop is None
    assert agreed(privacy=NOISE, stop={}).stop == StopConfig()
    assert agreed(stop="none").stop is None and agreed(stop=None).stop is None


def test_members_agree_whether_it_is_written_or_left_out() -> None:
    assert agreed().hashes() == agreed(stop={}).hashes() == agreed(stop={"patience": "auto"}).hashes()
    assert agreed(rows={"validation": 0}).hashes() == agreed(rows={"validation": 0}, stop="none").hashes()
    assert agreed().hashes() != agreed(stop="none").hashes()


def test_noise_spends_as_much_as_without_the_default() -> None:
    assert agreed(privacy=NOISE).hashes() == agreed(privacy=NOISE, stop="none").hashes()


@pytest.mark.parametrize("stop", [{}, {"patience": 3}, {"drop": 0.1}, "none"])
def test_a_run_goes_on_with_what_it_began_with(stop: Any) -> None:
    begun = parse(of(stop=stop))
    assert parse(with_defaults_before(config_tree(begun)), begun=True).federation.stop == begun.federation.stop


@pytest.mark.parametrize("of_before", [("stops",), ("stops", "start")], ids=["0.3", "0.2.0"])
@pytest.mark.parametrize(
    ("stop", "meant"),
    [
        ("left out", None),
        ({"patience": 3}, StopConfig(patience=3, metric=None)),
        ({"drop": 0.1}, StopConfig(patience=None, drop=0.1, metric=None)),
    ],
)
def test_a_run_of_an_earlier_version_goes_on_as_it_began(
    stop: Any, meant: StopConfig | None, of_before: tuple[str, ...], tmp_path: Path
) -> None:
    """Both members take its record for it, from the first Begin on: of two members one may have no checkpoint yet."""
    made = of() if stop == "left out" else of(stop=stop)
    assert parse(with_defaults_before(made), begun=True).federation.stop == meant
    simulated(of(stop="none", epochs=1), tmp_path / "run")
    run, home = RunFolder(tmp_path / "run"), RunFolder(tmp_path / "run").party("party1")
    for folder, file in ((home.path, home.pinned), (run.path, run.run)):
        record = unsealed(file.read_bytes())
        assert record["stops"] is True
        assert as_begun(parse(made), folder).federation.stop != meant  # it is of this version
        file.write_bytes(sealed({key: value for key, value in record.items() if key not in of_before}))
        assert as_begun(parse(made), folder).federation.stop == meant
        assert as_begun(parse(of(stop={"patience": 7, "metric": "loss"})), folder).federation.stop.patience == 7  # type: ignore[union-attr]
        Checkpoints(MemberFolder(folder).checkpoints).prune({0})
        assert as_begun(parse(made), folder).federation.stop == meant
    assert as_begun(parse(made), tmp_path / "new") == parse(made)


def test_of_equals_the_one_with_the_lower_loss_is_the_best() -> None:
    for metric in ("measure", "accuracy"):
        found = Best(StopConfig(metric=metric), {})
        for round, loss in ((1, 0.5), (2, 0.6), (3, 0.4)):
            found.enter(round, "validation", 0.9, loss=loss)
        assert found.round == 3


def test_the_model_is_of_the_best_round_also_if_the_run_reached_its_last(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    said = simulated(wild(), run.path)
    best = said["best"]["round"]
    assert said["rounds"] == 24 and not said["stopped"] and best < 24, "the rates are too tame for this test"
    assert said["model"] == {"round": best, "why": "the best by validation accuracy"}
    assert best_of_stopped(said) == said["best"] and metric_rows(said)[0][0] == "best"
    assert model_round(run.model_record) == model_round(run.party("party1").model_record) == best
    config = load(run.config, begun=True)
    _, store, held = PredictionRun(config.federation, config.server, Path(), run.path, work=None).check()  # type: ignore[arg-type]
    assert held == [best] and max(store.rounds()) == 24
    details = said["details"]["validation"]["confusion"]
    right = sum(details[number][number] for number in range(10)) / 100
    assert right == pytest.approx(said["best"]["val_accuracy"])


def test_without_a_stop_the_model_is_of_the_last_round_and_a_fall_is_said(tmp_path: Path) -> None:
    said = simulated(wild(stop="none"), tmp_path / "run")
    assert said["best"] is None and said["model"] == {"round": 24, "why": "the last: federation.stop is none"}
    assert model_round(RunFolder(tmp_path / "run").model_record) == 0
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    fallen = [event["reason"] for event in events if event["kind"] == "warning" and "has fallen" in event["reason"]]
    assert fallen and all(reason.startswith("validation accuracy has fallen since round ") for reason in fallen)


@pytest.mark.parametrize(
    ("federation", "why"),
    [
        ({"rows": {**ROWS, "validation": 0}}, "the last: there are no validation rows to choose a round by"),
        ({"privacy": NOISE}, "the last: under federation.privacy evaluations are releases"),
    ],
)
def test_the_summary_says_why_there_is_no_best_round(federation: dict[str, Any], why: str, tmp_path: Path) -> None:
    said = simulated(of(epochs=1, **federation), tmp_path / "run")
    assert said["best"] is None and said["model"]["why"].startswith(why)


def test_a_model_whose_checkpoint_is_gone_is_not_replaced_by_another(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    best = simulated(wild(), run.path)["best"]["round"]
    store = Checkpoints(run.checkpoints)
    store.prune({24})
    config = load(run.config, begun=True)
    with pytest.raises(CheckpointError, match=f"no whole checkpoint of round {best}, whose model is the run's"):
        PredictionRun(config.federation, config.server, Path(), run.path, work=None).check()  # type: ignore[arg-type]
    run.model_record.write_text("{")
    with pytest.raises(CheckpointError, match=r"committed\.json is torn or was altered"):
        PredictionRun(config.federation, config.server, Path(), run.path, work=None).check()  # type: ignore[arg-type]


def test_a_resumed_run_keeps_the_best_round_of_before(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    said = simulated(wild(), run.path)
    more = wild(epochs=13, stop={"patience": 30})
    simulate_in(parse(more), Path(), run.path)
    again = json.loads(run.summary.read_text())
    assert again["rounds"] == 26
    if again["best"]["round"] == said["best"]["round"]:
        assert again["details"] == said["details"] and again["absent"] == said["absent"]
    assert model_round(run.model_record) == again["model"]["round"] == again["best"]["round"]
    assert torch.isfinite(torch.tensor(again["best"]["val_loss"]))
    assert PartyFolder(run.party("party1").path).model_record == run.party("party1").pinned


SHORT = ("federation.rounds=12", "federation.epochs=0", "federation.batch=500", "federation.evaluate.every=1")
# Rates at which the validation accuracy goes up and down.
WILD = {"split": 5.0, "vimadmm": 1.0, "vimadmm_j": 1.0}
STOP = "federation.stop={patience: 2, metric: accuracy}"


def settings(name: str, *sets: str) -> Config:
    return config(PROTOCOLS[name], *SHORT, f"every_party.optimiser.lr={WILD[name]}", *sets)


def evaluated(outcome: Outcome, part: str, metric: str = "accuracy") -> list[float]:
    key = f"{'val' if part == 'validation' else 'test'}_{metric}"
    return [event[key] for event in outcome.of_kind("evaluation") if event["part"] == part]


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_that_has_stopped_stays_stopped_unless_it_is_given_more_patience() -> None:
    alone = federate(settings("split", STOP), save=True)
    end = alone.server.round
    again = federate(settings("split", STOP), start=(end, alone.saved[end]))
    assert not again.of_kind("round") and again.server.stopped == alone.server.stopped
    more = settings("split", "federation.stop={patience: 99, metric: accuracy}")
    on = federate(more, start=(end, alone.saved[end]))
    assert on.server.round == 12 and not on.server.stopped


@pytest.mark.slow
def test_a_run_that_ends_as_its_patience_does_is_not_called_stopped() -> None:
    end = federate(settings("split", STOP)).server.round
    last = federate(settings("split", STOP, f"federation.rounds={end}"))
    assert last.server.round == end and not last.server.stopped and not last.of_kind("stopped")
