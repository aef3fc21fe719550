"""A round without a sum has no loss: not in its event, its summary, its metrics, its line or its report."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.protocols.fedvs import Bundle
from colonnade.common.tracking.allowed import round_metrics
from colonnade.reports.console.progress import Progress
from colonnade.reports.console.screen import Screen
from colonnade.reports.records.run import read_run
from colonnade.server.member.training import ServerMetrics
from colonnade.simulation.federation import Outcome
from tests.cli.read.reports import leave
from tests.support.altered_lines import change_each
from tests.support.federation import config, federate

SETS = ("federation.rounds=4", "federation.epochs=0", "federation.evaluate.every=99")


def skipping(*rounds: int) -> Outcome:
    """A run of FedVS among all, in some rounds of which a box cannot be opened."""

    def alter(cohort: Cohort) -> None:
        def carried(item: Any) -> Any:
            if isinstance(item, Bundle) and item.round in rounds and not item.stage:
                item.boxes[20] ^= 1
            return item

        change_each(cohort["party3"], carried)

    return federate(config({"name": "fedvs", "embedding": 4}, *SETS), on_cohort=alter)


@pytest.fixture(scope="module")
def middle() -> Outcome:
    return skipping(3, 4)


def test_its_event_has_none_and_the_summary_that_of_the_newest_round_that_learned(middle: Outcome) -> None:
    rounds = middle.of_kind("round")
    assert [(event["round"], "loss" in event) for event in rounds] == [(1, True), (2, True), (3, False), (4, False)]
    assert [event["round"] for event in middle.of_kind("skipped")] == [3, 4]
    assert middle.server.metrics["train_loss"] == rounds[1]["loss"] != rounds[0]["loss"]
    assert "train_loss" not in skipping(1, 2, 3, 4).server.metrics


def test_progress_shows_a_dash(middle: Outcome) -> None:
    printed = io.StringIO()
    for events in (middle.of_kind("round")[:2], middle.of_kind("round")):
        progress = Progress(Screen(file=printed, width=160))
        for event in events:
            progress(event)
        progress.close()
    learned, last = printed.getvalue().splitlines()
    assert "2/4 rounds" in learned and f"loss {middle.of_kind('round')[1]['loss']:.4f}" in learned
    assert "4/4 rounds" in last and "loss -" in last


def test_metrics_keep_the_loss_before_and_trackers_get_none(middle: Outcome) -> None:
    metrics = ServerMetrics(SimpleNamespace(hub=SimpleNamespace(totals=SimpleNamespace(parties=()))))  # type: ignore[arg-type]
    for event in middle.of_kind("round"):
        metrics(event)
    assert metrics.scores["training", "loss"] == middle.of_kind("round")[1]["loss"] and metrics.round == 4
    assert ["train_loss" in round_metrics(event) for event in middle.of_kind("round")] == [True, True, False, False]


def test_a_report_has_a_curve_of_the_other_rounds_and_no_damaged_number(middle: Outcome, tmp_path: Path) -> None:
    folder = leave(tmp_path / "run", events=middle.of_kind("round"))
    (folder / "summary.json").unlink()  # a run that is not over
    run = read_run(folder)
    assert [at.round for at in run.trace.series["train_loss"]] == [1, 2] and list(run.trace.ends) == [1, 2, 3, 4]
    assert run.trace.lost == 0 and run.summary["rounds"] == 4
    assert run.summary["metrics"] == {"train_loss": middle.of_kind("round")[1]["loss"]}
