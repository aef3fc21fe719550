"""`tune`: what it refuses, what a trial may see, what it leaves, and how it goes on."""

from __future__ import annotations

import csv
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pyarrow as pa
import pytest
import yaml

import colonnade
from colonnade.common.errors import ConfigError, EnvironmentFault, InputError
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.parsing.file import parse
from colonnade.search import simulated, study, tuning, workers
from colonnade.search.found import Search
from colonnade.search.metrics import SearchMetric, search_metric
from colonnade.search.pages import gain_words
from colonnade.search.simulated import Result, Task, perform
from colonnade.search.study import TrialRecord
from colonnade.simulation.federation import Simulation
from tests.search.searches import LR, search, tiny
from tests.support import warm

pytestmark = pytest.mark.slow


def drawn(found: Search) -> list[tuple[Any, ...]]:
    rows = found.trials.select(["state", "value", "every_party.optimiser.lr"]).to_pylist()
    return [tuple(row.values()) for row in rows if row["state"] != "lost"]


def validated(config: dict[str, Any]) -> dict[str, float]:
    metrics = Simulation(parse(config)).run().server.metrics
    return {key: value for key, value in metrics.items() if key.startswith("val_")}


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        ({"metric": "test_auc"}, "may not choose by test rows", "take val_auc"),
        ({"metric": "val_acuracy"}, "did you mean 'val_accuracy'", "val_auc"),
        ({"metric": "val_rmse"}, "unknown metric", "val_auc"),
        ({"metric": "val_loss", "direction": "maximize"}, "the other one", "minimize"),
        ({"direction": "up"}, "expected maximize or minimize", ""),
        ({"trials": 0}, "--trials 0", ""),
        ({"jobs": 0}, "--jobs 0", ""),
        ({"pruner": "best"}, "--pruner best", ""),
        ({"storage": "trials.db"}, "expected a database URL, or journal:PATH", "sqlite:///"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, more: dict[str, Any], said: str, hint: str) -> None:
    with pytest.raises(InputError) as refused:
        search(tmp_path / "out", **more)
    assert said in str(refused.value) and hint in refused.value.hint


def test_no_validation_rows_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    config = tiny(rows={"validation": 0, "test": 60})
    with pytest.raises(InputError, match="no validation rows") as refused:
        search(tmp_path / "out", config=config)
    assert "federation.rows.validation" in refused.value.hint and not (tmp_path / "out").exists()


def test_an_unknown_key_is_refused_before_any_trial(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"federation\.protocol\.rho"):
        search(tmp_path / "out", space={"federation.protocol.rho": {"low": 1, "high": 2}})
    assert not (tmp_path / "out").exists()


def test_without_optuna_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(EnvironmentFault) as refused:
        search(tmp_path / "out")
    assert "colonnade[tune]" in refused.value.hint


def test_missing_data_end_the_search_before_any_trial(tmp_path: Path) -> None:
    config = tiny()
    config["every_party"]["data"] = {"source": "csv", "path": "nowhere.csv"}
    with pytest.raises(InputError, match=r"nowhere\.csv"):
        search(tmp_path / "out", config=config)


def test_the_best_configuration_comes_to_the_best_value(tmp_path: Path) -> None:
    """The oracle is a plain simulation of best.yaml, whose test rows are evaluated too."""
    found = search(tmp_path, metric="val_auc")
    assert found.direction == "maximize" and found.folder == tmp_path
    written = yaml.safe_load((tmp_path / "best.yaml").read_text())
    assert written == found.best_config
    assert validated(written)["val_auc"] == pytest.approx(found.best_value, abs=1e-12)
    assert found.best_value == max(found.trials["value"].to_pylist())
    again = colonnade.search.space.applied(tiny(), found.best_settings)  # type: ignore[attr-defined]
    assert validated(again) == validated(written)


def test_the_first_trial_is_the_file_itself(tmp_path: Path) -> None:
    found = search(tmp_path, trials=1)
    assert found.best_settings == ("every_party.optimiser.lr=0.1",)
    assert found.best_value == validated(tiny())["val_accuracy"]


def test_files_say_that_validation_rows_were_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = search(tmp_path, progress=True)
    screen, head = capsys.readouterr().out, (tmp_path / "best.yaml").read_text().split("federation:")[0]
    assert "3 trials looked at the validation rows" in screen and "test rows were not looked at" in screen
    assert f"--set {found.best_settings[0]}" in screen
    assert "3 trials have looked at the validation rows" in head.replace("\n# ", " ")
    page = found.page.read_text()
    assert "3 trials looked at the validation rows" in page and "<svg" in page and "test_" not in page
    rows = list(csv.DictReader((tmp_path / "trials.csv").open()))
    assert [float(row["value"]) for row in rows] == found.trials["value"].to_pylist()
    assert found.trials.schema.field("every_party.optimiser.lr").type == pa.float64()
    assert found.best_settings[0] in found._repr_html_() and str(tmp_path) in repr(found)
    assert isinstance(found.study, optuna.Study) and len(found.study.trials) == 3


def test_no_trial_evaluates_a_test_row() -> None:
    events: list[dict[str, Any]] = []
    timetable = simulated.without_test_rows
    outcome = Simulation(parse(tiny()), telemetry=Telemetry(None, events.append), timetable=timetable).run()
    assert {event["part"] for event in events if event["kind"] == "evaluation"} == {"validation"}
    assert not [key for key in outcome.server.metrics if key.startswith("test_")]
    plain = validated(tiny())
    assert {key: outcome.server.metrics[key] for key in plain} == plain  # the same run otherwise


def test_equal_seeds_draw_equal_trials(tmp_path: Path) -> None:
    one, same, other = (search(tmp_path / name, seed=seed, trials=2) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
    assert drawn(one) == drawn(same) != drawn(other)


def test_more_trials_go_on_where_fewer_ended(tmp_path: Path) -> None:
    first = drawn(search(tmp_path, trials=1))
    more = drawn(search(tmp_path, trials=2))
    assert more[:1] == first and len(more) == 2
    assert drawn(search(tmp_path, trials=1)) == more  # nothing more to do


def test_a_folder_of_another_search_is_refused(tmp_path: Path) -> None:
    search(tmp_path, trials=1)
    for more, part in (
        ({"metric": "val_loss"}, "metric"),
        ({"seed": 5}, "seed"),
        ({"config": tiny(batch=32)}, "configuration"),
        ({"space": {"federation.batch": {"choices": [32, 64]}}}, "space"),
        ({"pruner": "none"}, "pruner"),
    ):
        with pytest.raises(InputError, match=f"another {part}$"):
            search(tmp_path, **more)


def test_two_processes_do_not_work_in_one_folder(tmp_path: Path) -> None:
    with tuning.SearchFolder(tmp_path, "tune").locked(), pytest.raises(EnvironmentFault, match="another process"):
        search(tmp_path)


def test_a_trial_cut_off_is_tried_again_and_the_rest_is_as_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt in the second trial: the search resumed draws what an uninterrupted one draws."""
    whole = drawn(search(tmp_path / "whole"))
    calls = []

    def interrupted(task: Task, listen: simulated.Listen) -> Result:
        calls.append(task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return perform(task, listen)

    monkeypatch.setattr(workers, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "cut")
    resumed = search(tmp_path / "cut")
    assert resumed.trials["state"].to_pylist().count("lost") == 1
    assert drawn(resumed) == whole


def test_a_trial_that_another_machine_has_just_begun_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place is named one write after the trial begins: until then it looks like one of a process that was killed."""
    shared = optuna.create_study()
    ours, other = (
        study.TrialStore(shared, (), SearchMetric("val_loss", "minimize"), 0, place) for place in ("ours", "other")
    )
    left, fresh, dead = ours.ask(9), shared.ask(), shared.ask()
    assert left is not None and other.ask(9) is not None
    waits = []

    def later(seconds: float) -> None:
        waits.append(seconds)
        fresh.set_user_attr("place", "other")

    monkeypatch.setattr(study.time, "sleep", later)
    assert ours.recover() == 2 and len(waits) == 1
    states = {record.number: record.state for record in ours.records()}
    assert states == {left.number: "lost", fresh.number: "running", dead.number: "lost", 3: "running"}
    assert ours.recover() == 0 and len(waits) == 1


def test_failed_trials_keep_their_reason_and_the_search_goes_on(tmp_path: Path) -> None:
    found = search(tmp_path, trials=4, space={"federation.batch": {"choices": [64, 200, 300, 400]}})
    states = [(row["federation.batch"] <= 128, row["state"], bool(row["reason"])) for row in found.trials.to_pylist()]
    assert set(states) == {(True, "complete", False), (False, "failed", True)}
    assert "rows is more than the 128 training rows" in found.page.read_text()


def test_if_all_trials_fail_the_commonest_reason_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none of 3 trials has worked; 2 have failed with: .*128 training rows"):
        search(tmp_path, config=tiny(batch=600), space={"federation.batch": {"choices": [600, 700]}})
    assert (tmp_path / "trials.csv").exists() and not (tmp_path / "best.yaml").exists()


def test_divergence_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    found = search(tmp_path, trials=7, space={"every_party.optimiser.lr": {"low": 0.1, "high": 1e30, "log": True}})
    states = {row["state"]: row["reason"] for row in found.trials.to_pylist()}
    assert "diverged" in states["failed"] and "complete" in states


def test_a_trial_that_falls_behind_is_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted simulation: five trials learn, the sixth does not, and is asked to end at its fourth evaluation."""
    ended: list[int] = []

    def scripted(_task: Task, listen: simulated.Listen) -> Result:
        level = 0.1 if len(ended) == 5 else 0.5
        for number in range(1, 9):
            if not listen(number, {"accuracy": level + number / 100}, number == 8):
                ended.append(number)
                return Result({"accuracy": level + number / 100}, number, number, number, 0.0, 0, ended=True)
        ended.append(8)
        return Result({"accuracy": level + 0.08}, 8, 8, 8, 0.0, 0)

    monkeypatch.setattr(workers, "perform", scripted)
    found = search(tmp_path, trials=6)
    assert ended == [8, 8, 8, 8, 8, study.WARM_UP]
    last = found.trials.to_pylist()[-1]
    assert last["state"] == "pruned" and last["evaluations"] == study.WARM_UP and found.best_value == 0.58


def test_a_listener_ends_a_simulation() -> None:
    heard: list[tuple[int, bool]] = []

    def listen(number: int, metrics: Any, last: bool) -> bool:
        heard.append((number, last))
        assert set(metrics) == {"accuracy", "loss"}
        return number < 2

    task = Task(tiny(epochs=4), ".")
    result = perform(task, listen)
    assert result.ended and result.round == 4 and heard == [(1, False), (2, False)]
    assert not perform(task, lambda *_: True).ended


def test_a_run_that_stops_early_counts_with_its_best_round(tmp_path: Path) -> None:
    config = tiny(epochs=12, stop={"patience": 1})
    found = search(tmp_path, config=config, trials=1)
    outcome = Simulation(parse(config)).run()
    assert outcome.server.stopped and found.best_value == outcome.server.best.found["val_accuracy"]


def test_noise_is_warned_of_on_screen_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = tiny(privacy={"clip": 1, "noise_multiplier": 0.5, "delta": 1e-5})
    found = search(tmp_path, config=private, trials=1, progress=True)
    said = "the epsilon of the final run covers neither"
    assert said in " ".join(capsys.readouterr().out.split()) and said in found.page.read_text()


def test_a_section_of_the_file_is_used_and_others_ignore_it(tmp_path: Path) -> None:
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump({**tiny(), "search": LR}))
    found = colonnade.tune(config, trials=1, out=tmp_path / "out", progress=False)
    assert list(found.trials.column_names)[-1] == "every_party.optimiser.lr" and "search" not in found.best_config
    parsed = parse({**tiny(), "search": LR})
    assert parsed.federation.hashes() == parse(tiny()).federation.hashes()  # never agreed on


def test_paths_of_the_best_configuration_are_relative_to_its_folder(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "towers.py").write_text("def tower(shape, width): ...\n")
    tree = {"a": {"path": "data", "model": {"file": "./towers.py:tower"}, "model2": "./towers.py:tower"},
            "b": {"folder": "mnist", "path": str(tmp_path)}}  # fmt: skip
    from colonnade.common.parsing.dump import files_beside, relocated

    made = relocated(tree, tmp_path, tmp_path / "runs" / "x")
    assert made["a"] == {"path": "../../data", "model": {"file": "../../towers.py:tower"},
                         "model2": "../../towers.py:tower"}  # fmt: skip
    assert made["b"] == tree["b"]
    assert relocated(tree, tmp_path)["a"]["path"] == str(tmp_path / "data")
    query = {"query": "select * from 'data.csv' where kind = 'elsewhere.csv'"}
    (tmp_path / "data.csv").touch()
    assert files_beside({**tree, "c": query}, tmp_path)[-1] == "data.csv"
    assert f"from '{tmp_path}/data.csv' where kind = 'elsewhere.csv'" in relocated(query, tmp_path)["query"]


def test_folders_share_trials_by_a_storage(tmp_path: Path) -> None:
    """A trial that another folder has under way counts, and stays under way."""
    storage = f"journal:{tmp_path / 'trials.log'}"
    search(tmp_path / "one", trials=2, storage=storage)
    found = search(tmp_path / "two", trials=3, storage=storage)
    assert found.trials["state"].to_pylist() == ["complete"] * 3
    elsewhere = found._store.ask(4)
    assert elsewhere is not None
    other = search(tmp_path / "one", trials=5, storage=storage)
    assert other.trials["state"].to_pylist() == ["complete"] * 3 + ["running", "complete"]
    again = search(tmp_path / "two", trials=5, storage=storage)
    assert again.trials["state"].to_pylist() == ["complete"] * 3 + ["lost", "complete", "complete"]


@pytest.mark.processes
def test_jobs_in_parallel_come_to_what_one_process_does(tmp_path: Path) -> None:
    """Trials of parallel jobs are drawn otherwise; each value is that of a plain simulation of its settings."""
    found = search(tmp_path, trials=4, jobs=2)
    assert found.trials["state"].to_pylist() == ["complete"] * 4
    for row in found.trials.to_pylist()[:2]:
        lr = f"every_party.optimiser.lr={row['every_party.optimiser.lr']!r}"
        assert Simulation(parse(tiny(), (lr,))).run().server.metrics["val_accuracy"] == row["value"]


@pytest.mark.processes
def test_a_search_goes_on_after_kill_9(tmp_path: Path) -> None:
    """Killed in the middle of a trial: that trial is failed and tried again, and its worker is gone with it."""
    config, out = tmp_path / "tiny.yaml", tmp_path / "out"
    config.write_text(yaml.safe_dump({**tiny(epochs=60), "search": LR}))
    command = [sys.executable, "-m", "colonnade", "tune", str(config), "--trials=3", "--jobs=2", f"--out={out}"]
    process = warm.Popen(command, stdout=subprocess.DEVNULL, text=True)
    while not _stopped_in_a_trial(process, out):
        assert process.poll() is None
        time.sleep(0.1)
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + 60
    while any(_lives(pid) for pid in children):
        assert time.monotonic() < until
        time.sleep(0.1)
    assert "RUNNING" in _states(out)
    done = warm.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cut off and tried again" in done.stdout and (out / "best.yaml").exists()
    states = _states(out)
    assert states.count("FAIL") >= 1 and states.count("COMPLETE") == 3 and not {"RUNNING", "WAITING"} & set(states)


def _stopped_in_a_trial(process: subprocess.Popen[str], out: Path) -> bool:
    """Stops the process, and lets it go on if it is not in the middle of a trial."""
    if "RUNNING" not in _states(out):
        return False
    process.send_signal(signal.SIGSTOP)
    if "RUNNING" in _states(out):
        return True
    process.send_signal(signal.SIGCONT)
    return False


def _states(out: Path) -> list[str]:
    """States of the trials, as the database has them."""
    if not (out / "trials.db").exists():
        return []
    with sqlite3.connect(f"file:{out / 'trials.db'}?mode=ro", uri=True) as store:
        try:
            return [state for (state,) in store.execute("select state from trials")]
        except sqlite3.OperationalError:  # its tables are being made, or it is locked
            return []


def _lives(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_a_refusal_leaves_no_folder(tmp_path: Path) -> None:
    missing = tiny()
    missing["server"]["labels"] = {"source": "csv", "path": "nowhere.csv", "label": "y"}
    for more, error in (
        ({"storage": f"sqlite:///{tmp_path}/no/folder.db"}, EnvironmentFault),
        ({"config": missing}, InputError),
    ):
        with pytest.raises(error):
            search(tmp_path / "runs" / "out", **more)
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (0.9, 0.01, "10.0 ± 2.8 points better than the file's own settings (80.0%)."),
        (0.82, 0.01, "less than its interval of ± 2.8 points: these rows do not show a gain"),
        (0.9, None, "10.0 points better than the file's own settings (80.0%); no interval is known"),
    ],
)
def test_a_gain_over_the_file_is_said_with_its_interval(value: float, error: float | None, said: str) -> None:
    """Of two values with an error of .01 each, 1.96 standard errors of the difference are .0277."""
    own = TrialRecord(0, "complete", 0.8, (), {}, 1, 1.0, "", 0.01)
    best = replace(own, number=3, value=value, error=error)
    goal = search_metric("val_accuracy", "", "classification")
    assert said in gain_words(best, own, goal)
    assert gain_words(own, own, goal) == "No trial is better than the file's own settings."
    assert "outside of the space" in gain_words(best, None, goal)


def test_the_page_begins_with_the_gain_over_the_file_s_own_trial(tmp_path: Path) -> None:
    found = search(tmp_path, config=tiny(epochs=8), sets=("every_party.optimiser.lr=0.001",), trials=5)
    own, best = found.trials["value"].to_pylist()[0], found.best_value
    page = found.page.read_text()
    headline = page.split('class="headline">')[1].split("</p>")[0]
    assert f"Accuracy {100 * best:.1f} ± " in headline and f"({100 * own:.1f}%)" in headline
    assert f"{100 * (best - own):.1f}" in headline and page.index("headline") < page.index("<svg")
