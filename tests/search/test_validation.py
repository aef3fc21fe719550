"""`cv`: folds are scikit-learn's, and each is a plain simulation that is tested on the rows held out."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_diabetes, load_digits
from sklearn.model_selection import KFold, StratifiedKFold

import colonnade
from colonnade.common.config.data.sources import SklearnLabels
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data import sources
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import generator, partition_around
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import parse
from colonnade.search import folds, simulated, validation, workers
from colonnade.search.folds import folds_of
from colonnade.search.pages import half_interval
from colonnade.simulation.federation import Simulation
from tests.search.searches import tiny
from tests.support.tables import table_tree, write_tables


def validate(out: Any, **more: Any) -> validation.Validation:
    config = more.pop("config", tiny())
    return colonnade.cv(config, **{"folds": 3, "out": out, "progress": False} | more)


def test_folds_are_scikit_learns_and_a_fold_is_a_plain_simulation_of_the_rest(tmp_path: Path) -> None:
    """By hand: the rows of a fold, put last, are the test rows of a source without validation rows."""
    config = tiny(rows={"validation": 0})
    found = validate(tmp_path, config=config, seed=4)
    labels = load_digits().target
    splits = list(StratifiedKFold(3, shuffle=True, random_state=4).split(labels, labels))
    assert found.folds["rows"].to_pylist() == [len(held) for _, held in splits]
    for number, (_, held) in enumerate(splits):
        assert found.folds["accuracy"][number].as_py() == pytest.approx(by_hand(config, held), abs=1e-12)


def by_hand(config: dict[str, Any], held: np.ndarray) -> float:
    """Accuracy of a plain simulation whose schedule is made here, from the held-out rows alone."""
    rest = np.setdiff1d(np.arange(1797), held)

    def timetable(federation: Any, rows: int, official: int) -> Any:
        schedule = simulated.Schedule(federation, rows, official)
        order = torch.randperm(rows, generator=generator("partition", federation.seed))
        train = torch.tensor([row for row in order.tolist() if row in set(rest.tolist())])
        parts = simulated.replace(schedule.partition, train=train, validation=train[:0], test=torch.tensor(held))
        return simulated.Schedule(federation, rows, official, parts)

    outcome = Simulation(parse(config), timetable=timetable).run()
    return outcome.server.metrics["test_accuracy"]


def test_mean_and_deviation_are_those_of_the_folds(tmp_path: Path) -> None:
    found = validate(tmp_path, repeats=2, metric="auc")
    values = found.folds["auc"].to_pylist()
    assert len(values) == 6 and found.mean == mean(values) and found.deviation == stdev(values)
    assert found.folds.select(["repeat", "fold"]).to_pylist()[3] == {"repeat": 2, "fold": 1}
    kept = json.loads((tmp_path / "cv.json").read_text())
    assert (kept["mean"], kept["deviation"], kept["metric"]) == (found.mean, found.deviation, "auc")
    page = found.page.read_text()
    assert "no standard error" in page and "<svg" in page
    assert "auc" in repr(found) and f"{found.mean:.4f}" in found._repr_html_()
    assert isinstance(found.folds, pa.Table)


def test_every_row_is_held_out_once_a_repeat() -> None:
    labels = torch.tensor(load_digits().target)
    for stratified in (True, False):
        drawn = list(folds_of(labels, 4, 2, 0, stratified=stratified))
        assert len(drawn) == 8
        for repeat in (1, 2):
            rows = torch.cat([fold.held for fold in drawn if fold.repeat == repeat])
            assert torch.equal(rows.sort().values, torch.arange(len(labels)))
    oracle = KFold(4, shuffle=True, random_state=1).split(labels)  # the second repeat's
    assert [fold.held.tolist() for fold in drawn if fold.repeat == 2] == [held.tolist() for _, held in oracle]


def test_parts_of_a_fold_are_disjoint_and_together_all_rows() -> None:
    held = torch.tensor([3, 9, 27])
    parts = partition_around(held, 40, RowsConfig(validation=0.25), seed=0)
    every = torch.cat([parts.train, parts.validation, parts.test]).sort().values
    assert torch.equal(every, torch.arange(40)) and parts.test.tolist() == [3, 9, 27]
    assert len(parts.validation) == round(0.25 * 37)
    assert len(partition_around(held, 40, RowsConfig(train=5), seed=0).train) == 5
    with pytest.raises(ConfigError, match="none remains for training"):
        partition_around(held, 40, RowsConfig(validation=37), seed=0)


def test_a_sets_own_test_rows_take_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last 297 digits are made the set's own test part, with labels that nobody could predict."""

    def read(_config: SklearnLabels, _base: Path) -> LabelColumn:
        target = torch.tensor(load_digits().target)
        target[1500:] = 9 - target[1500:]
        return LabelColumn(target, tuple(map(str, range(10))), official_test=297)

    monkeypatch.setattr(sources, "_classes", read)
    monkeypatch.setattr(sources.Bundled, "official_test", 297, raising=False)
    tasks = []
    plain = workers.perform
    monkeypatch.setattr(workers, "perform", lambda task, listen: (tasks.append(task), plain(task, listen))[1])
    found = validate(tmp_path)
    assert sum(found.folds["rows"].to_pylist()) == 1500
    assert {row for task in tasks for row in task.held} == set(range(1500))


def test_finished_folds_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = validate(tmp_path / "whole").folds.drop_columns("seconds")
    calls = []
    plain = workers.perform

    def interrupted(task: Any, listen: Any) -> Any:
        calls.append(task)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return plain(task, listen)

    monkeypatch.setattr(workers, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        validate(tmp_path / "cut")
    assert validate(tmp_path / "cut").folds.drop_columns("seconds").equals(whole) and len(calls) == 4


def test_numbers_are_folded_without_strata(tmp_path: Path) -> None:
    config = tiny(task="regression", batch=32)
    del config["federation"]["classes"]
    config["federation"]["rows"] = {"validation": 0}
    config["server"]["labels"]["name"] = config["every_party"]["data"]["name"] = "diabetes"
    found = validate(tmp_path, config=config)
    assert found.metric == "rmse" and sum(found.folds["rows"].to_pylist()) == len(load_diabetes().target)
    with pytest.raises(InputError, match="--stratified"):
        validate(tmp_path / "other", config=config, stratified=True)


def test_tables_are_aligned_once_and_folds_are_of_the_common_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = write_tables(tmp_path, persons=120)
    common = set.intersection(*map(set, ids.values()))
    times: list[int] = []
    monkeypatch.chdir(tmp_path)
    plain = folds.find_rows
    monkeypatch.setattr(folds, "find_rows", lambda *args: (times.append(1), plain(*args))[1])
    found = validate(tmp_path / "out", config=table_tree(epochs=2))
    assert sum(found.folds["rows"].to_pylist()) == len(common) and len(times) == 1
    again = validate(tmp_path / "again", config=table_tree(epochs=2))
    drop = ["seconds"]
    assert again.folds.drop_columns(drop).equals(found.folds.drop_columns(drop))  # whatever order an alignment draws


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"metric": "test_auc"}, "of the rows that a fold holds out"),
        ({"metric": "val_auc"}, "of the rows that a fold holds out"),
        ({"metric": "acuracy"}, "did you mean 'accuracy'"),
        ({"folds": 1}, "--folds 1"),
        ({"folds": 2000}, "--folds 2000: there are 1797 rows"),
        ({"folds": 200}, "a class has 174 rows"),
        ({"repeats": 0}, "--repeats 0"),
    ],
)
def test_a_wrong_option_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as refused:
        validate(tmp_path, **more)
    assert said in str(refused.value)


def test_a_folder_of_another_division_is_refused(tmp_path: Path) -> None:
    config = tiny(epochs=1)
    validate(tmp_path, config=config)
    with pytest.raises(InputError, match="another division"):
        validate(tmp_path, config=config, folds=4)
    with pytest.raises(InputError, match="another configuration"):
        validate(tmp_path, config=tiny(epochs=2))


def test_noise_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = tiny(privacy={"clip": 1, "noise_multiplier": 0.5, "delta": 1e-5}, epochs=1)
    found = validate(tmp_path, config=private, progress=True)
    said = "does not cover a cross-validation"
    assert said in " ".join(capsys.readouterr().out.split()) and said in found.page.read_text()


@pytest.mark.processes
def test_parallel_jobs_come_to_the_same(tmp_path: Path) -> None:
    one, two = validate(tmp_path / "one"), validate(tmp_path / "two", jobs=2)
    assert one.folds.drop_columns("seconds").equals(two.folds.drop_columns("seconds"))


@pytest.mark.parametrize(("count", "held"), [(5, 0.2), (10, 0.1), (3, 1 / 3)])
def test_the_interval_of_the_mean_is_wider_than_that_of_independent_folds(count: int, held: float) -> None:
    values = np.random.default_rng(0).normal(0.8, 0.02, count).tolist()
    low, high = stats.t.interval(0.95, count - 1, mean(values), stdev(values) / count**0.5)
    plain = (high - low) / 2
    assert half_interval(values, held) == pytest.approx(plain * (1 + count * held / (1 - held)) ** 0.5)


def test_screen_page_and_chart_have_the_mean_with_its_interval(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = validate(tmp_path, metric="accuracy", progress=True)
    values = found.folds["accuracy"].to_pylist()
    said = f"{100 * found.mean:.1f} ± {100 * half_interval(values, 1 / 3):.1f}%"
    assert f"accuracy {said}: mean of 3 folds" in capsys.readouterr().out
    page = found.page.read_text()
    assert f"Accuracy {said}: mean of 3 folds" in page and page.count(said) == 2
    assert all(f"{100 * value:.1f}%" in page for value in values)
