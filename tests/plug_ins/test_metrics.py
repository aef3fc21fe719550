"""`server.extra_metrics`: metrics of other packages, those that fail among them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from colonnade.cli.run.simulate import simulate
from colonnade.common.errors import ConfigError
from colonnade.common.parsing.file import parse
from colonnade.reports.card.card import markdown
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import html
from colonnade.simulation.federation import Outcome
from tests.support.federation import federate, tree
from tests.support.packages import Packages

HITS = "def hits(scores, targets):\n    return (scores.argmax(axis=1) == targets).mean()\n"
OF = "the metric hits of colonnade-hits 1.0"


def install(packages: Packages, source: str, name: str = "hits") -> None:
    packages.install("colonnade-hits", "metrics", {name: f"hits_metric:{name}"}, source)


def named(*names: str, **federation: object) -> dict:
    made = tree({"name": "split"}, **federation)
    made["server"]["extra_metrics"] = list(names)
    return made


def warnings(outcome: Outcome) -> list[str]:
    return [event["reason"] for event in outcome.of_kind("warning")]


def test_it_gets_the_probabilities_and_classes_of_every_evaluation(packages: Packages) -> None:
    """The same value as that of the built-in metric."""
    install(packages, HITS)
    outcome = federate(parse(named("hits")))
    metrics = outcome.server.metrics
    assert metrics["val_hits"] == pytest.approx(metrics["val_accuracy"])
    assert metrics["test_hits"] == pytest.approx(metrics["test_accuracy"])
    assert all("val_hits" in event or "test_hits" in event for event in outcome.of_kind("evaluation"))
    assert len(outcome.of_kind("evaluation")) == 3 and not warnings(outcome)


def test_of_a_regression_in_the_targets_units(packages: Packages) -> None:
    install(packages, "def hits(scores, targets):\n    return abs(scores - targets).mean()\n")
    made = named("hits", task="regression", batch=64)
    del made["federation"]["classes"]
    made["server"]["labels"]["name"] = made["every_party"]["data"]["name"] = "diabetes"
    metrics = federate(parse(made)).server.metrics
    assert metrics["test_hits"] == pytest.approx(metrics["test_mae"], rel=1e-5) and metrics["test_mae"] > 10


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise ValueError('no')", f"{OF} failed: ValueError: no"),
        ("return 'high'", f"{OF}: it returned str, expected a number"),
        ("return None", f"{OF}: it returned NoneType, expected a number"),
        ("return True", f"{OF}: it returned bool, expected a number"),
        ("return scores", f"{OF}: it returned ndarray, expected a number"),
        ("return float('nan')", f"{OF} gave nan"),
        ("return 10**400", f"{OF} failed: OverflowError: int too large"),
        ("scores[:] = 0; return 1.0", f"{OF} failed: ValueError: assignment destination is read-only"),
    ],
)
def test_one_that_fails_is_reported_once_and_the_run_goes_on(packages: Packages, body: str, said: str) -> None:
    install(packages, f"def hits(scores, targets):\n    {body}\n")
    outcome = federate(parse(named("hits")))
    (warned,) = warnings(outcome)
    assert warned.startswith(said) and warned.endswith("; the run goes on without the metric")
    assert ("hits_metric.py, line 2, in hits)" in warned) == (" failed: " in said and "Overflow" not in said)
    assert "test_accuracy" in outcome.server.metrics and "test_auc" in outcome.server.metrics
    assert not any("hits" in key for key in outcome.server.metrics)


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("hist", HITS, r"server.extra_metrics = 'hist': unknown metric \(did you mean 'hits'\?\)"),
        ("accuracy", HITS, r"server.extra_metrics = 'accuracy': unknown metric"),
        ("hits", "import nowhere_at_all", rf"^{OF} cannot be imported: ModuleNotFoundError"),
        ("hits", "hits = 3", rf"^{OF}: it is int, expected a function"),
    ],
)
def test_one_that_cannot_be_used_is_refused_before_the_run(
    packages: Packages, name: str, source: str, said: str
) -> None:
    install(packages, source)
    with pytest.raises(ConfigError, match=said):
        parse(named(name))


def test_a_name_that_reports_would_misread_is_refused(packages: Packages) -> None:
    install(packages, "def accuracy_top3(scores, targets):\n    return 1.0\n", "accuracy_top3")
    with pytest.raises(ConfigError, match="the name must be letters, digits and underscores, and not begin with"):
        parse(named("accuracy_top3"))


def test_it_is_shown_in_the_summary_the_table_the_report_and_the_card(
    packages: Packages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(packages, HITS.replace("hits", "true_hits"), "true_hits")
    file, run = tmp_path / "run.yaml", tmp_path / "run"
    file.write_text(yaml.safe_dump(named("true_hits", epochs=1)))
    simulate(file, (), run)
    value = json.loads((run / "summary.json").read_text())["metrics"]["test_true_hits"]
    assert "test true hits" in capsys.readouterr().out
    assert json.loads((run / "summary.json").read_text())["environment"]["plug-ins"] == "colonnade-hits 1.0"
    read = read_run(run)
    assert f"| test true hits | {value:.4f} |" in markdown(read)
    assert "| plug-ins | colonnade-hits 1.0 |" in markdown(read)
    report = html([read], None)
    assert "test true hits" in report and ">true hits<" in report
