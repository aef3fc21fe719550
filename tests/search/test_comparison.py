"""`compare` on a configuration: whose values runs have, what is kept, what cannot run, and what is refused."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pydantic import TypeAdapter
from safetensors.torch import load_file
from typer.testing import CliRunner

import colonnade
from colonnade.cli.main import app
from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.contracts.registry import NAMES
from colonnade.common.data.rows import Partition
from colonnade.common.data.sources import load_features
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import parse
from colonnade.common.text import literal
from colonnade.search import references, simulated, workers
from colonnade.search.comparison import compared, outputs
from colonnade.search.comparison.adapting import GivenSetup
from colonnade.search.comparison.compared import Comparison
from colonnade.search.comparison.outcomes import KeptRun, gap
from colonnade.search.comparison.outputs import in_short
from colonnade.search.comparison.subject import Subject, limited, read_subject
from colonnade.search.metrics import SearchMetric
from colonnade.search.simulated import Result, Task
from colonnade.server.training.classes import ClassBalance
from colonnade.simulation.federation import Simulation
from tests.search.searches import tiny
from tests.support import warm
from tests.support.tables import table_tree, write_tables


@pytest.fixture(autouse=True)
def _one_reference(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trees take a second to grow; few tests need them."""
    if "every_reference" not in request.fixturenames:
        monkeypatch.setattr(compared, "REFERENCES", {"constant": references.REFERENCES["constant"]})


@pytest.fixture
def every_reference() -> None:
    """A test that has all references."""


def compared_on(out: Path, config: Any = None, **more: Any) -> Comparison:
    settings: dict[str, Any] = {
        "protocols": ["split", "fdml"], "trials": 0, "metric": "accuracy", "progress": False, "out": out,
    }  # fmt: skip
    settings |= more
    return colonnade.compare(tiny() if config is None else config, **settings)


def odd() -> dict[str, Any]:
    """A configuration in which everything that belongs to its own protocol is unusual."""
    config = tiny(protocol={"name": "vimadmm", "embedding": 8, "rho": 3.3, "tau": 7}, compress={"up": 8})
    config["server"] |= {"optimiser": {"lr": 0.777}, "head": {"name": "mlp", "hidden": 9}, "class_weights": "balanced"}
    config["every_party"] |= {"optimiser": {"name": "adam", "lr": 0.0123}, "head_optimiser": {"lr": 0.0777}}
    return config


def setup(config: dict[str, Any], folder: Path, **more: Any) -> GivenSetup:
    parsed = parse(config)
    subject = read_subject(parsed, Path(), folder, None)
    return GivenSetup.of(config, Path(), subject, **({"keep_models": False, "epsilon": 8.0} | more))


def tasks_of(monkeypatch: pytest.MonkeyPatch) -> list[Task]:
    """Every simulation that is run from now on."""
    seen: list[Task] = []
    plain = workers.perform

    def noted(task: Task, listen: Any) -> Result:
        seen.append(task)
        return plain(task, listen)

    monkeypatch.setattr(workers, "perform", noted)
    return seen


@pytest.mark.parametrize("name", ["split", "secureboost"])
def test_defaults_are_the_protocol_s_own_and_the_run_is_a_plain_simulation(tmp_path: Path, name: str) -> None:
    """The oracle: the same data in a file without a word on the protocol but its name, simulated."""
    length = {"epochs": 0, "rounds": 4}
    given = odd()
    given["federation"] |= length
    found = compared_on(tmp_path, given, protocols=[name]).table.to_pylist()[0]
    plain = tiny(protocol=name, **length)
    plain["server"]["class_weights"] = "balanced"
    del plain["every_party"]["model"], plain["every_party"]["optimiser"], plain["server"]["optimiser"]
    best = Simulation(parse(plain)).run().server.best.found
    assert found["defaults_test"] == pytest.approx(best["test_accuracy"], abs=1e-12)
    assert found["defaults_val"] == pytest.approx(best["val_accuracy"], abs=1e-12)
    assert found["status"] == "ok" and found["tuned_test"] is None and found["bytes"] > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fedvs", "scorecard")])
def test_no_value_of_the_file_s_own_protocol_is_taken(tmp_path: Path, name: str) -> None:
    given = setup(odd(), tmp_path)
    made = given.of_protocol(name).tree
    said = json.dumps(made)
    assert not [word for word in ("0.777", "0.0123", "0.0777", "3.3", "compress", "hidden") if word in said]
    weighted = name not in ("fdml", "c_vfl", "codes")  # whose parties compute the loss
    assert ("class_weights" in made["server"]) == weighted and made["federation"]["batch"] == 64
    assert {"federation.compress", "server.optimiser", "parties.optimiser"} <= set(given.dropped)
    if made["federation"]["protocol"].keys() == {"name"}:
        bare = parse({**made, "federation": {**made["federation"], "protocol": name}})
        assert parse(made) == bare


def test_models_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    made = setup(odd(), tmp_path, keep_models=True).of_protocol("split")
    assert made.tree["parties"]["party1"]["model"] == {"name": "mlp", "hidden": 8}
    assert made.tree["server"]["head"] == {"name": "mlp", "hidden": 9} and "optimiser" not in made.tree["server"]


@pytest.mark.parametrize(("name", "short"), [("split", True), ("local", False), ("centralized", False)])
def test_short_numbers_are_kept_where_a_protocol_takes_them(tmp_path: Path, name: str, short: bool) -> None:
    config = tiny()
    config["every_party"]["model"] = {"name": "mlp", "hidden": 8, "precision": "bfloat16"}
    made = setup(config, tmp_path, keep_models=True).of_protocol(name)
    models = [party["model"] for party in made.tree["parties"].values()]
    assert all(("precision" in model) is short for model in models)
    assert any("float32" in note for note in made.notes) is not short


def test_an_argument_named_precision_remains_the_users(tmp_path: Path) -> None:
    config = tiny()
    config["every_party"]["model"] = {"file": f"{tmp_path}/tower.py:Tower", "precision": "bfloat16"}
    made = setup(config, tmp_path, keep_models=True).of_protocol("local")
    assert all(party["model"]["precision"] == "bfloat16" for party in made.tree["parties"].values())


def test_a_pair_that_cannot_run_is_listed_with_its_reason(tmp_path: Path) -> None:
    found = compared_on(tmp_path, protocols=["fedvs", "vfedmh", "split"])
    rows = {row["protocol"]: row for row in found.table.to_pylist()}
    assert rows["fedvs"]["status"] == "cannot" and "parties" in rows["fedvs"]["reason"]
    assert rows["vfedmh"]["status"] == "ok" and "the server has the columns of party1" in rows["vfedmh"]["notes"]
    assert literal(rows["fedvs"]["reason"]) in (tmp_path / "comparison.md").read_text()
    config = tiny(parties=1)
    given = setup(config, tmp_path / "alone")
    with pytest.raises(ConfigError, match="there is one party"):
        given.of_protocol("agg_vfl")


def test_columns_of_the_server_are_a_party_s_where_the_server_has_none(tmp_path: Path) -> None:
    config = tiny(protocol={"name": "agg_vfl"})
    config["server"]["active"] = {"data": {"source": "sklearn", "name": "digits"}}
    given = setup(config, tmp_path)
    assert list(given.subject.shapes) == ["server", "party1", "party2"]
    made = given.of_protocol("split")
    assert made.tree["federation"]["parties"] == ["server_columns", "party1", "party2"]
    assert "active" not in made.tree["server"] and "active" in given.of_protocol("agg_vfl").tree["server"]


def test_trials_see_no_test_rows_and_the_best_has_one_run_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tasks_of(monkeypatch)
    found = compared_on(tmp_path, protocols=["split"], trials=3).table.to_pylist()[0]
    tested = [task.tested for task in seen]
    assert tested[0] and not any(tested[1:4]) and len(seen) in (4, 5)  # 5 if a trial was better than the defaults
    assert len(seen) == 4 or tested[4]
    assert found["tuned_val"] >= found["defaults_val"]
    assert found["gap_test"] == pytest.approx(100 * (found["tuned_test"] - found["defaults_test"]))
    assert bool(found["settings"]) == (len(seen) == 5)


def test_the_tuned_run_is_a_plain_simulation_with_these_settings(tmp_path: Path) -> None:
    found = compared_on(tmp_path, protocols=["split"], trials=4).table.to_pylist()[0]
    assert found["settings"]
    plain = tiny(protocol="split")
    del plain["every_party"]["model"], plain["every_party"]["optimiser"], plain["server"]["optimiser"]
    metrics = Simulation(parse(plain, tuple(found["settings"].split(" ")))).run().server.metrics
    assert found["tuned_test"] == pytest.approx(metrics["test_accuracy"], abs=1e-12)


def test_a_second_call_makes_no_run_and_more_trials_make_only_those(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = compared_on(tmp_path, trials=2).table
    seen = tasks_of(monkeypatch)
    assert compared_on(tmp_path, trials=2).table == first and not seen
    compared_on(tmp_path, trials=3)
    assert 0 < len(seen) <= 2 * 4
    seen.clear()
    compared_on(tmp_path, tiny(seed=5), protocols=["split"])
    assert len(seen) == 1  # another seed is another run


def test_other_protocols_in_the_same_folder_keep_the_rows_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are kept where all of their runs are, without a run; of other options or a lost run none are shown."""
    rows = {line["protocol"]: line for line in compared_on(tmp_path, trials=1).table.to_pylist()}
    seen = tasks_of(monkeypatch)
    both = compared_on(tmp_path, protocols=["fedbcd"], trials=1).table.to_pylist()
    assert {task.tree["federation"]["protocol"]["name"] for task in seen} == {"fedbcd"}
    assert {line["protocol"]: line for line in both if line["protocol"] != "fedbcd"} == rows and len(both) == 3
    assert [line["protocol"] for line in json.loads((tmp_path / "comparison.json").read_text())["protocols"]] == [
        line["protocol"] for line in both
    ]
    for file in (tmp_path / "runs").glob("*.json"):
        if json.loads(file.read_text())["about"].get("protocol") == "fdml":
            file.unlink()
    seen.clear()
    left = compared_on(tmp_path, protocols=["fedbcd"], trials=1, progress=True).table["protocol"].to_pylist()
    assert set(left) == {"fedbcd", "split"} and not seen
    assert "fdml: its row is left out" in capsys.readouterr().out


def test_a_torn_result_and_a_failed_run_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = compared_on(tmp_path, protocols=["split"]).table
    (path,) = [each for each in (tmp_path / "runs").iterdir() if "protocol" in json.loads(each.read_text())["about"]]
    path.write_text(path.read_text()[:100])
    seen = tasks_of(monkeypatch)
    assert compared_on(tmp_path, protocols=["split"]).table.drop("seconds") == before.drop("seconds")
    assert len(seen) == 1
    kept = json.loads(path.read_text())
    path.write_text(json.dumps({**kept, "state": "failed", "reason": "of an earlier version"}))
    assert compared_on(tmp_path, protocols=["split"]).table["status"].to_pylist() == ["ok"]


def test_a_run_that_diverges_is_kept_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverges(task: Task, listen: Any) -> Result:
        raise simulated.Diverged("diverged: val_loss is no number in round 3", hint="lower rates")

    monkeypatch.setattr(workers, "perform", diverges)
    row = compared_on(tmp_path, protocols=["split"]).table.to_pylist()[0]
    assert row["status"] == "diverged" and row["reason"] == "val_loss is no number in round 3 (lower rates)"
    assert row["defaults_test"] is None and row["gap_test"] is None
    monkeypatch.undo()
    assert compared_on(tmp_path, protocols=["split"]).table["status"].to_pylist() == ["diverged"]


def test_an_interrupted_comparison_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = compared_on(tmp_path / "whole", trials=2).table
    plain, count = workers.perform, [0]

    def interrupted(task: Task, listen: Any) -> Result:
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return plain(task, listen)

    monkeypatch.setattr(workers, "perform", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compared_on(tmp_path / "cut", trials=2)
    assert len(list((tmp_path / "cut/runs").iterdir())) >= 3
    again = compared_on(tmp_path / "cut", trials=2).table
    clocks = ["seconds", "tuned_seconds"]
    assert again.drop(clocks) == whole.drop(clocks)


@pytest.mark.processes
def test_a_killed_comparison_goes_on_in_worker_processes(tmp_path: Path, every_reference: None) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny()))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "colonnade", "compare", "--on", str(file), "split", "fdml", "--trials", "2",
               "--jobs", "2", "--out", str(out)]  # fmt: skip
    process = warm.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 90
    while len(list((out / "runs").glob("*.json"))) < 3 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path.name: path.read_bytes() for path in (out / "runs").glob("*.json")}
    assert len(kept) >= 3
    done = warm.run(command, capture_output=True, timeout=110)
    assert "fdml" in done.stdout and "boosting" in done.stdout
    assert {name: (out / "runs" / name).read_bytes() for name in kept} == kept
    whole = compared_on(tmp_path / "whole", tiny(), trials=2, metric="").folder / "runs"
    assert {path.name for path in whole.iterdir()} == {path.name for path in (out / "runs").iterdir()}


@pytest.mark.parametrize(
    ("more", "said", "hint"),
    [
        ({"protocols": ["splitt"]}, "no protocol 'splitt' (did you mean 'split'?)", "there are split"),
        ({"metric": "test_accuracy"}, "may not choose by test rows", "val_accuracy"),
        ({"metric": "acuracy"}, "unknown metric", "val_auc"),
        ({"trials": -1}, "--trials -1", ""),
        ({"jobs": 0}, "--jobs 0", ""),
        ({"rows": 3}, "--rows 3", ""),
        ({"config": tiny(rows={"validation": 0, "test": 60})}, "no validation rows", "rows.validation"),
        ({"config": tiny(rows={"validation": 60, "test": 0})}, "no test rows", "rows.test"),
        ({"config": {key: value for key, value in tiny().items() if key != "server"}}, "no `server` section", ""),
    ],
)
def test_wrong_input_is_refused_and_nothing_is_written(
    tmp_path: Path, more: dict[str, Any], said: str, hint: str
) -> None:
    with pytest.raises(InputError) as refused:
        compared_on(tmp_path / "out", more.pop("config", None), **more)
    assert said in str(refused.value) and hint in refused.value.hint
    assert not (tmp_path / "out").exists()


def test_options_of_a_file_without_a_file_are_refused() -> None:
    done = CliRunner().invoke(app, ["compare", "--trials", "3"])
    assert done.exit_code and isinstance(done.exception, InputError) and "--trials without --on" in str(done.exception)


def test_all_files_say_the_same(tmp_path: Path, every_reference: None) -> None:
    found = compared_on(tmp_path, trials=1, seeds=2)
    record = json.loads((tmp_path / "comparison.json").read_text())
    rows = list(csv.DictReader((tmp_path / "comparison.csv").open()))
    assert [row["protocol"] for row in rows] == ["split", "fdml", *(f"reference: {name}" for name in
            ("boosting", "network", "constant"))]  # fmt: skip
    for row, line, shown in zip(rows, record["protocols"], found.table.to_pylist(), strict=False):
        assert float(row["defaults_test"]) == line["defaults_test"] == shown["defaults_test"]
        for page in ("comparison.md", "comparison.html"):
            assert f"{100 * (line['tuned_test'] or line['defaults_test']):.1f} ±" in (tmp_path / page).read_text()
    assert found.references["test"].to_pylist() == [line["test"] for line in record["references"]]
    assert f"Take {record['recommended']}: " in record["because"]
    for page in ("comparison.md", "comparison.html"):
        assert record["because"] in " ".join(re.sub(r"<[^>]*>|\*\*", " ", (tmp_path / page).read_text()).split())
    assert record["data"]["train"] == 128 and record["metric"] == found.metric == "accuracy"
    assert "split" in found._repr_html_() and str(tmp_path) in repr(found)
    assert len({path.stat().st_mode & 0o077 for path in tmp_path.rglob("*") if path.is_file()} - {0}) == 0


def test_seeds_change_models_and_not_the_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = tasks_of(monkeypatch)
    compared_on(tmp_path, protocols=["split"], seeds=2)
    assert [task.tree["federation"]["seed"] for task in seen] == [0, 1]
    assert len({task.divided for task in seen}) == 1


def test_references_are_scikit_learn_on_all_columns(tmp_path: Path, every_reference: None) -> None:
    found = {row["reference"]: row for row in compared_on(tmp_path, protocols=["split"]).references.to_pylist()}
    folder = next(path for path in (tmp_path / "data").iterdir())
    columns, labels = _joined(folder)
    parts = simulated.read_parts(folder / "parts.safetensors")
    common = np.bincount(labels[parts.train]).argmax()
    assert found["constant"]["test"] == pytest.approx((labels[parts.test] == common).mean())
    assert columns.shape == (248, 64) and found["network"]["test"] > 0.6 > found["constant"]["test"]
    assert found["boosting"]["status"] == "ok"


def _joined(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    from safetensors.torch import load_file

    files = [folder / f"columns-{place}.safetensors" for place in range(2)]
    columns = torch.cat([load_file(file)["values"] for file in files], dim=1)
    return columns.numpy(), load_file(folder / "labels.safetensors")["values"].numpy()


def test_fewer_rows_are_of_the_same_parts() -> None:
    parts = Partition(torch.arange(100, 1000), torch.arange(100), torch.arange(1000, 1500))
    few = limited(parts, 200, 0)
    assert [len(few.train), len(few.validation), len(few.test)] == [180, 20, 200]
    for name in ("train", "validation", "test"):
        assert torch.isin(getattr(few, name), getattr(parts, name)).all()
    assert torch.equal(limited(parts, 200, 0).test, few.test) and not torch.equal(limited(parts, 200, 1).test, few.test)
    assert limited(parts, None, 0) is parts and len(limited(parts, 5000, 0).train) == 900


@pytest.mark.parametrize(
    ("classes", "targets", "metric"),
    [((50, 50), 0, "accuracy"), ((90, 10), 0, "auc"), ((50, 10, 10), 0, "balanced_accuracy"), ((), 2, "r2"),
     ((10, 12, 11), 0, "accuracy"), ((62, 38), 0, "accuracy"), ((76, 24), 0, "auc")],
)  # fmt: skip
def test_the_metric_fits_the_labels(classes: tuple[int, ...], targets: int, metric: str) -> None:
    found = Subject(Path(), "", {}, {}, 1, 1, 1, classes, targets).metric
    assert found[0] == metric and (targets or found[0] == ClassBalance(classes).measure)  # a run's own headline


def test_gaps_are_improvements() -> None:
    up, down = SearchMetric("accuracy", "maximize"), SearchMetric("rmse", "minimize")
    assert gap(0.5, 0.6, up) == pytest.approx(10) and gap(5.0, 4.0, down) == 1.0 and gap(None, 1.0, up) is None
    assert in_short("every_party.optimiser.lr=0.1 federation.batch=64") == "party lr=0.1 batch=64"


def test_a_regression_of_two_members_with_tables(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 4)).round(4)
    y = x @ [1.0, -2.0, 0.5, 1.5]
    import pyarrow as pa

    ids = [f"c{number}" for number in range(200)]
    tables = {
        "server": pa.table({"id": ids, "y": y}),
        "bank": pa.table({"id": ids[:190], "a": x[:190, 0], "b": x[:190, 1]}),
        "shop": pa.table({"id": ids[5:], "c": x[5:, 2], "d": x[5:, 3]}),
    }
    config = {
        "federation": {"id": "sums", "protocol": "split", "task": "regression", "align": "psi", "batch": 32,
                       "epochs": 10, "seed": 0},
        "server": {"labels": {"key": "id", "label": "y"}}, "every_party": {"data": {"key": "id"}},
    }  # fmt: skip
    found = compared_on(tmp_path, config, tables=tables, metric="", protocols=["split", "linear_admm"])
    assert found.metric == "r2" and sum(json.loads((tmp_path / "comparison.json").read_text())["data"][part]
                                        for part in ("train", "validation", "test")) == 185  # fmt: skip
    assert found.table["status"].to_pylist() == ["ok", "ok"]
    again = compared_on(tmp_path, config, tables=tables, metric="", protocols=["split", "linear_admm"])
    assert again.table == found.table  # rows are in the same order again: everything was kept


def test_by_default_all_built_in_protocols_but_references_take_part() -> None:
    assert set(NAMES) - set(compared.chosen(None)) == {"local", "centralized"}
    assert compared.chosen(["local"]) == ("local",)


def test_a_kept_run_without_the_metric_does_not_count() -> None:
    run = KeptRun("ok", "", Result({"accuracy": 1.0}, tested={"accuracy": 1.0}), ({"accuracy": 1.0},))
    assert run.has("accuracy", tested=True) and not run.has("auc", tested=False)


def test_protocols_that_read_tables_are_given_the_tables(tmp_path: Path) -> None:
    write_tables(tmp_path)
    words = [f"Person {n:04},{n if n % 5 else ''},{'xy '[n % 3].strip()}" for n in range(400)]
    (tmp_path / "words.csv").write_text("\n".join(["who,a,b", *words]))
    given = parse(table_tree(protocol="secureboost"), ("parties.party2.data.path=words.csv",))
    subject = read_subject(given, tmp_path, tmp_path / "data", None)
    data = {**subject.data("party2", typed=True), "missing": "mean"}
    read = load_features(TypeAdapter(DataConfig).validate_python(data), PartyIndex(0, 1), tmp_path)
    assert [field.words for field in read.fields] == [None, ("x", "y")]
    a, b = read.values.T
    assert a.isnan().sum() > 50 and b.isnan().sum() > 50
    assert torch.equal(b[~a.isnan()].nan_to_num(2), a[~a.isnan()] % 3)


def test_tables_with_other_keys_are_aligned_again(tmp_path: Path) -> None:
    """Also if they have as many rows as before: rows of the earlier alignment are of other persons."""
    config = parse({
        "federation": {
            "id": "again", "protocol": "split", "align": "psi", "classes": 2, "parties": ["one"], "batch": 8,
            "epochs": 1, "rows": {"validation": 0, "test": 5},
        },
        "server": {"labels": {"source": "csv", "path": "labels.csv", "key": "id", "label": "y"}},
        "parties": {"one": {"data": {"source": "csv", "path": "one.csv", "key": "id", "scale": "none"}}},
    })  # fmt: skip
    people = [f"p{number}" for number in range(20)]
    (tmp_path / "labels.csv").write_text("id,y\n" + "".join(f"{id},{n % 2}\n" for n, id in enumerate(people)))
    for order in (people, people[::-1]):
        (tmp_path / "one.csv").write_text("id,x\n" + "".join(f"{id},{people.index(id) % 2}\n" for id in order))
        subject = read_subject(config, tmp_path, tmp_path / "data", None)
        (x, *_), (y, *_) = (load_file(path).values() for path in (subject.columns("one"), subject.label_file))
        assert x.flatten().tolist() == y.flatten().tolist()
    written = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert len(written) > 4 and not any(path.stat().st_mode & 0o077 for path in written)  # labels and columns


def test_models_at_chance_are_marked_everywhere_with_the_error_of_their_values(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels that no column knows: whatever is trained, the test rows show nothing."""
    random = np.random.default_rng(0)
    import pyarrow as pa

    labels = np.where(random.random(400) < 0.5, "yes", "no")
    columns = {name: pa.table({"a": random.normal(size=400), "b": random.normal(size=400)}) for name in ("p", "q")}
    config = tiny()
    config["federation"]["classes"] = 2
    config["federation"].pop("parties")
    config["server"] = {"labels": {"label": "y"}}
    config["every_party"] = {}
    monkeypatch.setattr(outputs.console, "_width", 80)
    found = compared_on(
        tmp_path, config, tables={"server": pa.table({"y": labels}), **columns}, protocols=["split"], progress=True
    )
    (line,) = found.table.to_pylist()
    rows = 60
    share = line["defaults_test"]
    assert line["defaults_error"] == pytest.approx((share * (1 - share) / rows) ** 0.5, rel=0.03)
    assert line["at_chance"] == "defaults" and found.references["at_chance"].to_pylist() == ["yes"]
    shown = capsys.readouterr().out
    assert "positive class yes" in shown and "None is shown to be better than chance on the 60 test rows" in shown
    assert "set apart: split: on the test rows the model is no better than a model that knows no column" in shown
    assert "\nsplit " in shown and "…" not in shown
    assert next(csv.DictReader((tmp_path / "comparison.csv").open()))["at_chance"] == "defaults"
    assert f"± {196 * line['defaults_error']:.1f}%" in (tmp_path / "comparison.html").read_text()


def test_models_that_have_learned_are_not_marked(tmp_path: Path) -> None:
    (split,) = compared_on(tmp_path, protocols=["split"]).table.to_pylist()
    assert split["at_chance"] == "" and 0 < split["defaults_error"] < 0.1
