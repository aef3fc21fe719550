"""`colonnade.simulate` and `colonnade.up`: the same runs as on the command line, from files and from memory."""

from __future__ import annotations

import _thread
import asyncio
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch
import yaml

import colonnade
from colonnade.common.contracts.registry import NAMES
from colonnade.common.errors import ColonnadeError, ConfigError, DataError, EnvironmentFault, InputError
from colonnade.launcher.federation import relaunch
from colonnade.launcher.predictions import id_words
from colonnade.launcher.processes import started
from colonnade.launcher.virtual import resume_virtually
from tests.python.tables import make_config, make_tables
from tests.support import warm
from tests.support.federation import tree
from tests.support.warm import COLONNADE

DEMO = Path(__file__).parents[2] / "experiments" / "demo.yaml"
SHORT = ("federation.epochs=1",)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> colonnade.Run:
    return colonnade.simulate(make_config(), make_tables(), tmp_path_factory.mktemp("simulated") / "run")


def test_tables_from_memory_come_to_a_model(simulated: colonnade.Run) -> None:
    assert (simulated.status, simulated.parties) == ("completed", ("bank", "clinic"))
    assert simulated.metrics["test_auc"] > 0.8  # type: ignore[operator]
    assert simulated.ledger("bank")["kind"].to_pylist()[0] != ""
    assert simulated.report().exists() and simulated.card().exists()
    assert simulated.explain().table["party"].to_pylist() in (["bank", "clinic"], ["clinic", "bank"])


@pytest.mark.processes
def test_a_simulated_model_predicts_by_processes(simulated: colonnade.Run) -> None:
    tables = make_tables()
    both = sorted(set(tables["bank"].id) & set(tables["clinic"].id))
    found = simulated.predict([*both[:3], 1])
    assert found["id"].to_pylist() == [*map(str, both[:3]), "1"]
    assert found["class"].null_count == found["p_0"].null_count == 1 and found["class"][3].as_py() is None
    assert [a.as_py() + b.as_py() for a, b in zip(found["p_0"][:3], found["p_1"][:3], strict=True)] == pytest.approx(
        [1] * 3
    )


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.table, lambda frame: frame.set_index("id")])
def test_other_libraries_and_an_index_are_the_same_tables(simulated: colonnade.Run, convert: Any) -> None:
    tables = {name: convert(table) for name, table in make_tables().items()}
    assert colonnade.simulate(make_config(), tables).metrics == simulated.metrics


def test_files_and_the_command_line_are_the_same_to_the_last_bit(simulated: colonnade.Run, tmp_path: Path) -> None:
    config = make_config(parties=["bank", "clinic"])
    for name, table in make_tables().items():
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    config["server"]["labels"] |= {"source": "csv", "path": "server.csv"}
    config["parties"] = {name: {"data": {"source": "csv", "path": f"{name}.csv"}} for name in ("bank", "clinic")}
    (tmp_path / "file.yaml").write_text(yaml.safe_dump(config))
    from_dict = colonnade.simulate(config)
    warm.run([*COLONNADE, "simulate", "file.yaml", "--out", "cli"], capture_output=True)
    from_cli = json.loads(Path("cli/summary.json").read_text())["metrics"]
    assert from_dict.metrics == from_cli == simulated.metrics


def test_typed_sections_are_the_same_as_a_mapping(simulated: colonnade.Run) -> None:
    federation = colonnade.Federation(
        id="credit", protocol=colonnade.protocols.Split(), parties=["bank", "clinic"], classes=2, align="psi",
        epochs=2, batch=64, keys={"seeded": True},
    )  # fmt: skip
    run = colonnade.simulate({**make_config(), "federation": federation}, make_tables())
    assert run.metrics == simulated.metrics and run.protocol == "split"
    modules = (getattr(colonnade.protocols, name).__module__ for name in dir(colonnade.protocols))
    assert sorted(NAMES) == sorted(module.rpartition(".")[2] for module in modules)


@pytest.mark.processes
def test_processes_leave_the_same_folder_and_bits_as_a_simulation() -> None:
    public = (*SHORT, "federation.public_start=true")
    real = colonnade.up(DEMO, out="real", sets=public)
    virtual = colonnade.simulate(DEMO, out="virtual", sets=public)
    assert real.metrics == virtual.metrics
    of_processes = {
        name for name in files(real.folder) if Path(name).name in ("log.txt", "server.log", ".launcher.lock")
    }
    of_parties = {
        name
        for name in files(real.folder)
        if Path(name).parts[0] == "parties" and Path(name).name in ("events.jsonl", ".lock")
    }
    assert files(virtual.folder) == files(real.folder) - of_processes - of_parties
    assert real.resume(epochs=2).metrics == virtual.resume(epochs=2).metrics
    assert virtual.events["kind"].to_pylist().count("begin") == 2


def test_nobody_else_can_read_a_run_and_the_process_keeps_its_umask(simulated: colonnade.Run) -> None:
    modes = {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in simulated.folder.rglob("*") if path.is_file()}
    assert modes == {0}
    mask = os.umask(0o022)
    assert os.umask(mask) == 0o022


def test_it_runs_inside_a_running_loop_with_the_same_bits(simulated: colonnade.Run) -> None:
    async def cell() -> colonnade.Run:
        return colonnade.simulate(make_config(), make_tables())

    assert asyncio.run(cell()).metrics == simulated.metrics


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_an_interrupt_ends_a_simulation_that_can_be_resumed(in_a_loop: bool) -> None:
    steps = "federation.protocol.tau=2"

    def stop(event: dict[str, Any]) -> None:
        if (event["kind"], event.get("round")) == ("checkpoint", 3):
            _thread.interrupt_main()

    def cell() -> None:
        sets = ("federation.checkpoint.rounds=3", "federation.epochs=50", steps)
        colonnade.simulate(DEMO, out="run", sets=sets, on_event=stop)

    async def in_loop() -> None:
        with pytest.raises(KeyboardInterrupt):
            cell()

    if in_a_loop:
        asyncio.run(in_loop())
    else:
        with pytest.raises(KeyboardInterrupt):
            cell()
    run = colonnade.load("run")
    assert run.status == "interrupted" and 3 <= run.summary["rounds"] < 24
    whole = colonnade.simulate(DEMO, sets=("federation.epochs=4", steps))
    assert run.resume(epochs=4).metrics == whole.metrics and run.status == "completed"


def test_an_error_of_the_listener_ends_the_run_and_passes_through() -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["kind"] == "round":
            raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"):
        colonnade.simulate(make_config(), make_tables(), "run", on_event=fail)
    assert colonnade.load("run").status == "failed"


def without(table: pd.DataFrame, *rows: int) -> pd.DataFrame:
    return table.assign(income=table.income.mask(table.reset_index().index.isin(rows)))


WRONG: list[tuple[str, dict[str, Any], type[ColonnadeError], str, str]] = [
    ("a key of numbers with a point", {"bank": lambda t: t.assign(id=t.id.astype(float))}, DataError,
     r"^bank: tables\['bank'\], column 'id': is of type double", "words or whole numbers"),
    ("keys written otherwise", {"bank": lambda t: t.assign(id=t.id.map("{:08}".format))}, DataError,
     "no key is common to all members", "written alike"),
    ("several types in a column", {"bank": lambda t: t.assign(income=["a", 1, 2.5] * (len(t) // 3))}, DataError,
     r"^tables\['bank'\], column 'income', cannot be read", "one type"),
    ("a missing value", {"bank": lambda t: without(t, 4)}, DataError,
     r"^bank: tables\['bank'\], row 4 \(counted from 0\), column 'income': the value is missing", "fill it in"),
    ("no table", {"bank": lambda t: t.to_dict()}, DataError, r"^tables\['bank'\] is a dict", "pandas"),
    ("no label", {"server": lambda t: t.drop(columns="late")}, DataError,
     r"tables\['server'\] has no column 'late'", "begin with id"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "said", "remedy"), [case[1:] for case in WRONG], ids=[c[0] for c in WRONG])
def test_wrong_tables_are_refused_by_name_and_leave_nothing(
    change: dict[str, Any], kind: type[ColonnadeError], said: str, remedy: str
) -> None:
    tables = {name: change.get(name, lambda table: table)(table) for name, table in make_tables().items()}
    with pytest.raises(kind, match=said) as refused:
        colonnade.simulate(make_config(), tables)
    assert remedy in refused.value.hint and not list(Path().rglob("*"))


def test_members_without_data_and_tables_of_nobody_are_refused() -> None:
    tables = make_tables()
    of_two = make_config(parties=["bank", "clinic"])
    cases: list[tuple[Any, Any, type[ColonnadeError], str]] = [
        (of_two, {"server": tables["server"], "bank": tables["bank"]}, ConfigError, "^clinic has no table"),
        (make_config(), {name: tables[name] for name in ("bank", "clinic")}, ConfigError, "^server has no table"),
        (of_two, {**tables, "shop": tables["bank"]}, InputError, r"^tables\['shop'\]: no party"),
        ({**make_config(), "every_party": {"data": {"source": "csv"}}}, tables, ConfigError, "names a source too"),
        ([1], None, ConfigError, "config is a list"),
        ("nowhere.yaml", None, ConfigError, "there is no such file"),
        (make_config(epoch=3), tables, ConfigError, "federation.epoch: unknown key"),
    ]  # fmt: skip
    for config, given, kind, said in cases:
        with pytest.raises(kind, match=said):
            colonnade.simulate(config, given)
    assert not list(Path().rglob("*"))


@pytest.mark.processes
def test_a_party_that_fails_is_named_with_its_key_and_the_remedy() -> None:
    tables = make_tables() | {"bank": without(make_tables()["bank"], 4)}
    with pytest.raises(colonnade.MemberFailed, match=r"^bank: tables\['bank'\], row 4 .*, column 'income'") as failed:
        colonnade.up(make_config(), tables, "run")
    assert failed.value.member == "bank" and "missing" in failed.value.hint and failed.value.exit_code == 2
    assert not Path("run").exists()


@pytest.mark.processes
def test_an_interrupt_ends_every_process(capfd: pytest.CaptureFixture[str]) -> None:
    def stop(event: dict[str, Any]) -> None:
        if event["kind"] == "round" and event["round"] == 2:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        colonnade.up(DEMO, out="run", sets=("federation.epochs=500",), on_event=stop)
    assert colonnade.load("run").status == "interrupted"
    left = subprocess.run(["pgrep", "-f", str(Path("run").resolve())], capture_output=True, text=True, check=False)
    assert left.stdout == "" and capfd.readouterr().out == ""


@pytest.mark.processes
def test_ctrl_c_ends_processes_also_under_asyncio_run() -> None:
    async def cell() -> None:
        def stop(event: dict[str, Any]) -> None:
            if (event["kind"], event.get("round")) == ("round", 2):
                _thread.interrupt_main()

        with pytest.raises(KeyboardInterrupt):
            colonnade.up(DEMO, out="run", sets=("federation.epochs=500",), on_event=stop)

    asyncio.run(cell())
    assert colonnade.load("run").status == "interrupted"


@pytest.mark.processes
def test_a_listener_that_fails_ends_every_process() -> None:
    def fail(event: dict[str, Any]) -> None:
        if event["kind"] == "listening":
            raise LookupError("of the caller")

    with pytest.raises(LookupError, match="of the caller"):
        colonnade.up(DEMO, out="run", sets=SHORT, on_event=fail)
    assert not Path("run").exists()


@pytest.mark.processes
@pytest.mark.parametrize("protocol", ["vfedmh", "fedvs"])
def test_rounds_with_keys_of_their_session_go_on_in_either_way(protocol: str) -> None:
    config = tree({"name": protocol, **({"embedding": 8} if protocol == "fedvs" else {})}, epochs=1, parties=4)
    run = colonnade.simulate(config, out="run")
    rounds = run.summary["rounds"]
    with started() as processes:
        relaunch(processes, run.folder, ["federation.epochs=2"])
    assert run.summary.get("clock") is None and run.summary["rounds"] == 2 * rounds
    resume_virtually(run.folder, ["federation.epochs=3"])
    assert run.status == "completed" and run.summary["clock"] == "virtual"


def test_a_ledger_has_the_alignment_too(simulated: colonnade.Run) -> None:
    kinds = set(simulated.ledger("bank")["kind"].to_pylist())
    assert {"Points", "Positions", "Embedding"} <= kinds
    assert (simulated.folder / "parties" / "bank" / "once" / "foreign-keys.json").exists()
    assert "aligned" in simulated.events["kind"].to_pylist()


def test_a_killed_simulation_goes_on_as_one(simulated: colonnade.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(simulated.folder, tmp_path / "killed"))
    (folder / "summary.json").unlink()
    lines = (folder / "events.jsonl").read_text().splitlines()
    (folder / "events.jsonl").write_text("\n".join(line for line in lines if '"kind": "end"' not in line) + "\n")
    run = colonnade.load(folder)
    assert (run.status, run.summary["clock"]) == ("unfinished", "virtual")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(str(simulated.folder), str(folder)))
    assert run.resume(epochs=3).status == "completed" and not list(folder.rglob("log.txt"))


def test_a_run_overwrites_neither_its_configuration_nor_a_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(tree({"name": "split"}, epochs=1)))
    before = file.read_bytes()
    with pytest.raises(InputError, match="would overwrite"):
        colonnade.simulate(file, out=tmp_path)
    (tmp_path / "table.arrow").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        colonnade.simulate(make_config(), make_tables(), tmp_path)
    assert file.read_bytes() == before and sorted(path.name for path in tmp_path.iterdir()) == [
        "config.yaml",
        "table.arrow",
    ]


def test_a_refusal_leaves_a_folder_as_it_was() -> None:
    (Path("run") / "parties").mkdir(parents=True)
    (Path("run") / "parties" / "notes.txt").write_text("mine")
    tables = make_tables() | {"clinic": make_tables()["clinic"].drop(columns="id").reset_index(drop=True)}
    with pytest.raises(DataError, match="tables\\['clinic'\\] has no column 'id'"):
        colonnade.simulate(make_config(), tables, "run")
    assert [path.as_posix() for path in sorted(Path("run").rglob("*")) if path.is_file()] == ["run/parties/notes.txt"]


def test_overlapping_calls_leave_the_umask_and_private_files() -> None:
    before = os.umask(0o022)
    try:
        with ThreadPoolExecutor(2) as pool:
            config = tree({"name": "split"}, epochs=2)
            runs = list(pool.map(lambda _: colonnade.simulate(config), range(3)))
        assert len({run.folder for run in runs}) == 3
        modes = {path.stat().st_mode & 0o077 for run in runs for path in run.folder.rglob("*")}
        assert modes == {0}
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_models_own_dropout_is_seeded_and_leaves_the_callers_generator(tmp_path: Path) -> None:
    (tmp_path / "tower.py").write_text(
        "from torch import nn\n\ndef Tower(shape, width=6):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.LazyLinear(width))\n"
    )
    config = tree({"name": "split", "embedding": 6}, epochs=2)
    config["every_party"]["model"] = {"file": "./tower.py:Tower"}
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        expected = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        found.append(colonnade.simulate(config, sets=("federation.checkpoint.rounds=2",)))
        assert torch.equal(torch.rand(3), expected)
    assert found[0].metrics == found[1].metrics


def test_keys_in_another_order_are_refused_where_rows_go_by_their_order() -> None:
    tables, config = make_tables(), make_config(align="none")
    tables = {
        **tables,
        **{name: tables["server"][["id"]].assign(x=1.0 * tables["server"].id) for name in ("bank", "clinic")},
    }
    assert colonnade.simulate(config, tables).status == "completed"
    tables["clinic"] = tables["clinic"].sample(frac=1, random_state=0)
    for start in (colonnade.simulate, colonnade.up):
        with pytest.raises(DataError, match=r"^clinic: the keys of its table differ .* or their order does"):
            start(config, tables, "run")
    assert not Path("run").exists()


def test_fewer_rounds_than_are_done_are_refused(simulated: colonnade.Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(simulated.folder, tmp_path / "copy"))
    before = (folder / "config.yaml").read_bytes()
    with pytest.raises(ConfigError, match="rounds are done, and the configuration ends after"):
        colonnade.load(folder).resume(epochs=1)
    assert (folder / "config.yaml").read_bytes() == before


def test_search_and_validation_take_tables() -> None:
    config = make_config(rows={"test": 0.2, "validation": 0.2})
    found = colonnade.tune(
        config, make_tables(), trials=2, space={"federation.batch": {"choices": [32, 64]}}, out="tune", progress=False
    )
    assert found.trials.num_rows == 2 and colonnade.simulate(Path("tune/best.yaml")).status == "completed"
    folds = colonnade.cv(config, make_tables(), folds=2, out="cv", progress=False)
    assert folds.folds.num_rows == 2
    assert {path.stat().st_mode & 0o077 for path in Path().rglob("*")} == {0}
    with pytest.raises(DataError, match=r"tables\['bank'\]"):
        colonnade.tune(config, make_tables() | {"bank": without(make_tables()["bank"], 3)}, trials=1, out="wrong")
    assert not Path("wrong").exists()


@pytest.mark.parametrize(
    "part",
    [
        {"server": {"labels": "x"}}, {"server": ["x"]}, {"parties": {"bank": "x"}}, {"every_party": ["x"]},
        {"every_party": {"data": "x"}}, {"parties": ["bank"]}, {"federation": "x"},
    ],
)  # fmt: skip
def test_malformed_sections_beside_tables_are_refused_as_without(part: dict[str, Any]) -> None:
    with pytest.raises(ColonnadeError):
        colonnade.simulate({**make_config(), **part}, make_tables())
    assert not list(Path().rglob("*"))


def test_objects_that_are_no_tables_no_ids_and_no_listeners_are_refused(simulated: colonnade.Run) -> None:
    for tables in (make_tables()["bank"], [1], {"server": 1}):
        with pytest.raises(DataError):
            colonnade.simulate(make_config(), tables)
    with pytest.raises(InputError, match="on_event is a int"):
        colonnade.simulate(make_config(), make_tables(), on_event=5)
    for ids in (5, None, ["\ud800"], [None], [1.0]):
        with pytest.raises(DataError):
            simulated.predict(ids)
    assert id_words([np.int64(3), pa.scalar(4), "x", 5]) == ("3", "4", "x", "5")


def test_threads_of_the_caller_are_left_as_they_are(simulated: colonnade.Run) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert colonnade.simulate(make_config(), make_tables()).metrics == simulated.metrics
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_two_runs_within_a_second_have_folders_of_their_own() -> None:
    config = tree({"name": "split"}, epochs=1)
    folders = {colonnade.simulate(config).folder for _ in range(3)}
    assert len(folders) == 3 and {folder.parent.name for folder in folders} == {"runs"}
    with pytest.raises(EnvironmentFault, match="holds a run already"):
        colonnade.simulate(config, out=next(iter(folders)))


def test_what_a_run_that_ended_cannot_do_is_refused(simulated: colonnade.Run) -> None:
    for ids, said in (
        ([1.5], "ids\\[0\\] is 1.5"),
        ([], "no ids"),
        ("17", "several ids"),
        (make_tables()["bank"], "whole table"),
        (make_tables(), "several tables"),
        ([True], "bool"),
    ):
        with pytest.raises(DataError, match=said):
            simulated.predict(ids)
    with pytest.raises(ColonnadeError, match="another configuration"):
        simulated.resume(sets=("federation.batch=32",))
    shown, page = simulated._repr_html_(), simulated.report().read_text()
    said = re.findall('<p class="headline">(.*?)</p>', page)
    assert len(said) == 1 and said[0] in unescape(shown) and "<script" not in shown
