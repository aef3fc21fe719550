"""Tables whose rows stay on the disk: equal to the last bit to those in memory, and never an outdated or torn file."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.data.tables import ParquetData
from colonnade.common.config.members import Config
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.on_disk import DiskMatrix, in_order, training_first
from colonnade.common.data.sources import load_features, prepare, prepare_others
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError, EnvironmentFault
from colonnade.common.parsing.file import parse
from colonnade.simulation.federation import RunFiles, Simulation
from tests.support import warm

ALONE = PartyIndex(0, 1)
STORE = "tables/rows.safetensors"
ROWS = 70_000  # more than a block
TRAIN = torch.randperm(ROWS, generator=torch.Generator().manual_seed(3))[:66_000]


def write_tables(made: Path, rows: int, train: torch.Tensor) -> Path:
    draws = np.random.default_rng(1)
    towns = np.array(["Ulm", "Bonn", None, " Rom "], object)[draws.integers(0, 4, rows)]
    towns[train[-1]] = "Rom"
    pay = np.exp(draws.normal(0, 3, rows))
    pay[draws.random(rows) < 0.01] = np.nan
    columns = {"who": np.arange(rows).astype(str), "pay": pay, "age": draws.integers(1, 90, rows), "town": towns}
    pq.write_table(pa.table({**columns, "cold": draws.normal(size=rows).astype(np.float32)}), made / "t.parquet")
    pq.write_table(pa.table({"y": draws.integers(0, 2, rows).astype(str)}), made / "y.parquet")
    return made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("table"), ROWS, TRAIN)


def config(**more: object) -> DataConfig:
    given = {"source": "parquet", "path": "t.parquet", "drop": ["who"], "missing": "mean", "unseen": "zero"}
    return ParquetData.model_validate({**given, **more})


def read(folder: Path, out: Path | None = None, **more: object) -> Features:
    return load_features(config(**more), ALONE, folder, None if out is None else TableCache(out, writes=True))


def columns(folder: Path, out: Path | None = None, begun: bool = False, **more: object) -> Columns:
    if out is not None:
        out.mkdir(exist_ok=True)
    kept = None if out is None else EncoderFile(out, begun=begun)
    return prepare(config(**more), read(folder, out, **more), TRAIN, 0, "a", kept)


def test_the_table_is_read_alike(folder: Path, tmp_path: Path) -> None:
    here, there = (read(folder, tmp_path, store=store) for store in ("memory", "disk"))
    assert here.values.numpy().tobytes() == there.values.numpy().tobytes() and here.fingerprint == there.fingerprint
    assert (here.names, here.fields, here.doubts) == (there.names, there.fields, there.doubts)
    some = torch.randperm(ROWS)[:1000]
    assert torch.equal(here.rows(some).values.nan_to_num(-7), there.rows(some).values.nan_to_num(-7))
    assert not [*tmp_path.rglob("*.*")]  # files without a name


@pytest.mark.parametrize("how", [
    {}, {"scale": "standard"}, {"scale": "unit"}, {"scale": "none", "missing": "zero"}, {"missing": "median"},
    {"columns": ["pay"], "drop": []}, {"columns": ["town"], "drop": []}, {"scale": {"mean": 3, "std": 2}},
])  # fmt: skip
def test_encoded_rows_are_equal_to_the_last_bit(folder: Path, tmp_path: Path, how: dict[str, Any]) -> None:
    here, there = (columns(folder, tmp_path / store, store=store, **how) for store in ("memory", "disk"))
    assert here.shape == there.shape and here.names == there.names and here.doubts == there.doubts
    every = torch.arange(ROWS)
    for rows in (TRAIN[:1000], every[:7], every, every.flip(0), every[:0]):
        assert torch.equal(here[rows], there[rows])
    alike = [(tmp_path / store / "encoder.json").read_bytes() for store in ("memory", "disk")]
    assert alike[0] == alike[1]
    for wrong in (-1, ROWS):
        with pytest.raises(IndexError):
            there[torch.tensor([wrong])]


def test_the_file_is_one_of_safetensors_with_training_rows_first(folder: Path, tmp_path: Path) -> None:
    stored = columns(folder, tmp_path, store="disk")
    found = load_file(tmp_path / STORE)
    assert np.array_equal(found["values"][: len(TRAIN)], stored[TRAIN].numpy())
    assert np.array_equal(found["values"][found["places"]], stored[torch.arange(ROWS)].numpy())
    assert (tmp_path / STORE).stat().st_mode & 0o777 == 0o600


def test_rows_to_predict_have_a_file_without_a_name(folder: Path, tmp_path: Path) -> None:
    here, there = (
        prepare_others(config(store=store), read(folder, store=store), 0, "a", EncoderFile(tmp_path, begun=True))
        for store in ("memory", "disk")
        if columns(folder, tmp_path)
    )
    assert torch.equal(here[TRAIN], there[TRAIN]) and not (tmp_path / STORE).exists()


def test_a_resumed_run_takes_the_file_as_it_is_and_another_table_anew(folder: Path, tmp_path: Path) -> None:
    before, state = columns(folder, tmp_path, store="disk")[TRAIN], (tmp_path / STORE).stat().st_ino
    assert torch.equal(columns(folder, tmp_path, begun=True, store="disk")[TRAIN], before)
    assert (tmp_path / STORE).stat().st_ino == state
    other = prepare(
        config(store="disk"), read(folder, store="disk"), TRAIN.flip(0), 0, "a", EncoderFile(tmp_path, begun=True)
    )
    assert (
        torch.equal(other[TRAIN], before) and (tmp_path / STORE).stat().st_ino != state
    )  # another order of training rows
    standard = columns(folder, tmp_path, store="disk", scale="standard")
    assert torch.equal(standard[TRAIN], columns(folder, scale="standard")[TRAIN])


@pytest.mark.parametrize("spoil", [
    lambda content: content[:-9], lambda content: content[:5000], lambda _: b"", lambda content: content + b"x",
    lambda content: content[:9000] + bytes([content[9000] ^ 1]) + content[9001:], lambda _: bytes(9000),
])  # fmt: skip
def test_a_torn_or_altered_file_is_written_again(folder: Path, tmp_path: Path, spoil: Any) -> None:
    before = columns(folder, tmp_path, store="disk")[TRAIN]
    content = (tmp_path / STORE).read_bytes()
    (tmp_path / STORE).write_bytes(spoil(content))
    assert torch.equal(columns(folder, tmp_path, begun=True, store="disk")[TRAIN], before)
    assert (tmp_path / STORE).read_bytes() == content


@pytest.mark.parametrize("change", ["cut", "touched", "replaced", "removed", "altered"])
def test_a_file_that_changes_while_it_is_mapped_is_refused(folder: Path, tmp_path: Path, change: str) -> None:
    stored, path = columns(folder, tmp_path, store="disk"), tmp_path / STORE
    stored[TRAIN[:9]]
    if change == "cut":
        os.truncate(path, 5000)
    elif change == "touched":
        os.utime(path, ns=(1, 1))
    elif change == "replaced":
        (tmp_path / "copy").write_bytes(path.read_bytes())
        (tmp_path / "copy").replace(path)
    elif change == "altered":  # the size and the time as before
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:  # a file system's clock has ticks
            with path.open("r+b") as file:
                file.seek(-9000, os.SEEK_END)
                file.write(bytes(8))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    else:
        path.unlink()
    with pytest.raises(DataError, match=r"rows\.safetensors was changed, replaced or removed while it was in use"):
        stored[TRAIN[:9]]


def test_a_full_disk_leaves_no_file(folder: Path, tmp_path: Path) -> None:
    """As a limit on the size of files: the system refuses a write beyond it."""
    features, before = read(folder, tmp_path, store="disk"), resource.getrlimit(resource.RLIMIT_FSIZE)
    for most, said in ((10_000, "a table cannot be kept in"), (ROWS * 32 + 2000, "cannot take the table's rows")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            with pytest.raises(EnvironmentFault, match=f"{said}.*{os.strerror(errno.EFBIG)}"):
                prepare(config(store="disk"), features, TRAIN, 0, "a", EncoderFile(tmp_path, begun=False))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.name for path in (tmp_path / "tables").iterdir()] == []


def test_unseen_words_are_located_as_in_memory(folder: Path) -> None:
    said = []
    for store in ("memory", "disk"):
        with pytest.raises(DataError) as wrong:
            prepare(config(store=store, unseen="refuse"), read(folder, store=store), TRAIN[:2], 0, "a")
        said.append(str(wrong.value))
    assert said[0] == said[1] and "t.parquet, row" in said[0]


@given(st.integers(1, 300), st.data())
def test_any_order_of_rows_is_written(rows: int, data: st.DataObject) -> None:
    values = np.random.default_rng(rows).normal(size=(rows, 3))
    index = data.draw(
        st.permutations(range(rows)).map(lambda found: found[: max(1, rows // 2)]) | st.lists(st.integers(0, rows - 1))
    )
    made = DiskMatrix(3, Path("/tmp"))
    made.append(values)
    found = in_order(torch.from_numpy(made.mapped()), torch.tensor(index, dtype=torch.int64), Path("/tmp"))
    assert np.array_equal(found.numpy(), values[index])
    train = np.unique(np.array(index, np.int64))
    assert sorted(training_first(train, rows).tolist()) == list(range(rows))


@pytest.mark.parametrize(("more", "said"), [
    ({"noise": {"std": 1}}, "`noise` is drawn for all rows at once"), ({"types": {"town": "text"}}, "images and texts"),
    ({"key": "who", "drop": [], "repeated": "mean"}, "`repeated: mean` needs all rows at once"),
])  # fmt: skip
def test_what_needs_all_rows_and_a_disk_exclude_each_other(more: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        config(store="disk", **more)


_MEASURED = """
import re, sys, threading, time
from pathlib import Path
import torch
from colonnade.client.member.process import PartyMember
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data.rows import partition
from tests.common.data.test_on_disk import EncoderFile, config, prepare, read

def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

most, folder, store = [], Path(sys.argv[1]), sys.argv[2]
before = anonymous()

def watch():
    while True:
        most.append(anonymous())
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
how = dict(path="wide.parquet", drop=[], store=store, scale="standard")
features = read(folder, folder, **how)
train = partition(len(features.values), 0, RowsConfig(), 0).train
columns = prepare(config(**how), features, train, 0, "a", EncoderFile(folder, begun=False))
for rows in torch.split(train, 1000):
    columns[rows]
print(max(most) - before)
"""


def test_memory_does_not_grow_with_the_table(tmp_path: Path) -> None:
    """300,000 rows of 25 numbers are 60 MB as they are read, and 30 MB encoded: 210 MB in memory."""
    draws = np.random.default_rng(0).standard_normal((25, 300_000), np.float32)
    columns = {f"c{n}": column for n, column in enumerate(draws)}
    pq.write_table(pa.table(columns), tmp_path / "wide.parquet", use_dictionary=False)
    argv = [sys.executable, "-c", _MEASURED, str(tmp_path), "disk"]
    taken = int(warm.run(argv, capture_output=True).stdout)
    assert taken < 150_000  # kB


# Runs.


def tree(folder: Path, store: str, shuffle: object = None, protocol: str = "split", **federation: object) -> Config:
    own = {"source": "parquet", "path": str(folder / "t.parquet"), "missing": "mean", "unseen": "zero", "store": store}
    split = {"a": {"columns": ["pay", "town"]}, "b": {"columns": ["age", "cold"]}}
    return parse({
        "federation": {
            "id": "t", "protocol": protocol, "parties": ["a", "b"], "classes": 2, "rounds": 6, "batch": 250,
            "shuffle": shuffle or False, "seed": 1, "rows": {"train": 2000}, "public_start": True, **federation,
        },
        "server": {"labels": {"source": "parquet", "path": str(folder / "y.parquet"), "label": "y"}},
        "parties": {name: {"data": {**own, **columns}} for name, columns in split.items()},
    })  # fmt: skip


@pytest.mark.parametrize("shuffle", ["full", {"blocks": 128, "group": 3}], ids=["full", "blocks"])
def test_losses_are_those_of_memory_to_the_last_bit(tmp_path: Path, shuffle: object) -> None:
    """Also of a run that goes on, with rows on the disk, from where one with rows in memory stopped, and back."""
    kept, folder = [], write_tables(tmp_path, 3000, torch.arange(3000))
    for place, stores in enumerate((("memory", "memory"), ("memory", "disk"), ("disk", "memory"))):
        outcomes = []
        for rounds, store in zip((3, 6), stores, strict=True):
            cfg = tree(folder, store, shuffle, rounds=rounds)
            outcomes.append(Simulation(cfg, folder, files=RunFiles(tmp_path / str(place), cfg, folder)).run())
        kept.append([(one["round"], one["loss"]) for out in outcomes for one in out.of_kind("round")])
    assert len(kept[0]) == 6 and all(losses == kept[0] for losses in kept)


def test_a_party_says_that_it_writes_its_table(tmp_path: Path) -> None:
    folder = write_tables(tmp_path, 3000, torch.arange(3000))
    frame = pq.read_table(folder / "y.parquet")
    pq.write_table(frame.append_column("who", pq.read_table(folder / "t.parquet")["who"]), folder / "y.parquet")
    for store in ("disk", "memory"):
        given = tree(folder, store, rounds=2, align="sorted").model_dump(mode="json")
        for section in (given["server"]["labels"], *(party["data"] for party in given["parties"].values())):
            section["key"] = "who"
        cfg = parse(given)
        (tmp_path / store).mkdir()
        told = Simulation(cfg, folder, files=RunFiles(tmp_path / store, cfg, folder)).run().of_kind("preparing")
        assert {event["party"] for event in told} == ({"a", "b"} if store == "disk" else set())


@pytest.mark.parametrize("protocol", ["fedvs", "hetero_lr", "codes", "scorecard", "secureboost", "additive"])
def test_a_protocol_that_takes_the_whole_table_refuses(folder: Path, protocol: str) -> None:
    with pytest.raises(ConfigError, match=f"parties.a.data.store = disk with the protocol {protocol}"):
        tree(folder, "disk", protocol=protocol, parties=["a", "b", "c"])
