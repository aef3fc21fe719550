"""Copies of tables in a run's folder: used only while they are of the same table, and nobody else's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.data.tables import CsvData, CsvLabels, ParquetData
from colonnade.common.data import table_cache
from colonnade.common.data.columns.features import Features
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.data.table import TableColumns
from colonnade.common.data.table_cache import TableCache

ALONE = PartyIndex(0, 1)
TABLE = "who,age,town,day\nann,1.5,Ulm,x\nböb,,,y\ncyd,-3,Bonn,x\n"
COPY = "tables/columns.safetensors"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for every time that a table is read."""
    found, real = list[str](), TableColumns.features

    def features(self: TableColumns) -> Features:
        found.append("read")
        return real(self)

    monkeypatch.setattr(TableColumns, "features", features)
    return found


def config(**more: object) -> DataConfig:
    return CsvData.model_validate({"source": "csv", "path": "table.csv", "key": "who", "missing": "mean", **more})


def read(folder: Path, how: DataConfig | None = None, *, writes: bool = True) -> Features:
    cache = TableCache(folder, writes=writes)
    found = load_features(how or config(), ALONE, folder, cache)
    cache.keep()
    return found


def same(one: Features, other: Features) -> bool:
    assert one.values.numpy().tobytes() == other.values.numpy().tobytes() and one.fingerprint == other.fingerprint
    assert one.ids == other.ids and list(one.ids or ()) == list(other.ids or ())
    return (one.names, one.fields, one.doubts) == (other.names, other.fields, other.doubts)


def test_a_table_is_read_once(table: Path, reads: list[str]) -> None:
    first = read(table.parent)
    again = read(table.parent)
    assert same(first, again) and reads == ["read"]
    assert same(first, load_features(config(), ALONE, table.parent)) and len(first.fields) == 3
    again.values.zero_()  # memory of the process, and not the file
    assert same(first, read(table.parent)) and len(reads) == 2


def test_the_owner_alone_can_read_a_copy(table: Path) -> None:
    before = os.umask(0)
    try:
        read(table.parent)
    finally:
        os.umask(before)
    copy = table.parent / COPY
    assert [path.stat().st_mode & 0o777 for path in (copy, copy.parent)] == [0o600, 0o700]
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]


@pytest.mark.parametrize(
    "more",
    [
        {"missing": "zero"},
        {"columns": ["town"]},
        {"columns": ["town", "age"]},
        {"drop": ["day"]},
        {"key": None, "drop": ["who"]},
        {"types": {"age": "category"}},
        {"split": {"kind": "columns", "index": 0, "count": 2}},
        {"path": "other.csv"},
    ],
)
def test_a_copy_with_other_settings_is_not_used(table: Path, reads: list[str], more: dict[str, object]) -> None:
    (table.parent / "other.csv").write_text(TABLE)
    read(table.parent)
    assert same(read(table.parent, config(**more)), load_features(config(**more), ALONE, table.parent))
    assert len(reads) == 3


def test_a_copy_of_another_table_is_not_used_though_its_size_and_dates_are_the_same(table: Path) -> None:
    before = table.stat()
    read(table.parent)
    table.write_text(TABLE.replace("1.5", "2.5"))
    os.utime(table, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert table.stat().st_size == before.st_size and table.stat().st_mtime_ns == before.st_mtime_ns
    assert read(table.parent).values[0, 0] == 2.5
    assert read(table.parent).values[0, 0] == 2.5


def test_a_copy_of_another_version_is_not_used(table: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    read(table.parent)
    monkeypatch.setattr(table_cache, "VERSION", "0.0.1")
    read(table.parent)
    assert len(reads) == 2


def test_a_damaged_copy_is_made_again(table: Path, reads: list[str]) -> None:
    meant, copy = read(table.parent), table.parent / COPY
    whole = copy.read_bytes()
    damaged = [whole[:size] for size in range(0, len(whole), 37)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in range(0, len(whole), 11)]
    for content in damaged:
        copy.write_bytes(content)
        reads.clear()
        assert same(read(table.parent), meant) and same(read(table.parent), meant) and reads == ["read"]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda copy: copy.chmod(0o644),
        lambda copy: copy.parent.chmod(0o750),
        lambda copy: (copy.rename(copy.with_name("moved")), copy.symlink_to(copy.with_name("moved"))),
        lambda copy: (copy.unlink(), copy.mkdir()),
        lambda copy: (copy.unlink(), copy.write_bytes(b"cos\nsystem\n(S'true'\ntR.")),
    ],
    ids=["others may read it", "others may enter", "a link", "a folder", "a pickle"],
)
def test_a_copy_that_may_be_anothers_is_not_used(
    table: Path, spoil: Callable[[Path], object], reads: list[str]
) -> None:
    meant = read(table.parent)
    spoil(table.parent / COPY)
    assert same(read(table.parent), meant) and len(reads) == 2


def test_nothing_is_kept_where_it_is_switched_off_or_a_format_is_read_as_fast(table: Path) -> None:
    read(table.parent, config(cache=False))
    how = ParquetData(source="parquet", path="table.csv")
    assert not how.cached and not hasattr(how, "cache")
    cache = TableCache(table.parent)  # that of a command that only looks at a run
    load_features(config(), ALONE, table.parent, cache)
    cache.keep()
    assert [path.name for path in table.parent.iterdir()] == ["table.csv"]


def test_a_table_that_changes_while_it_is_read_is_not_kept(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = TableColumns.features

    def features(self: TableColumns) -> Features:
        found = real(self)
        table.write_text(TABLE.replace("1.5", "7.5"))
        return found

    monkeypatch.setattr(TableColumns, "features", features)
    read(table.parent)
    assert not (table.parent / COPY).exists()


def test_a_disk_that_takes_no_copy_is_no_error(table: Path) -> None:
    (table.parent / "tables").write_text("in the way")
    meant = load_features(config(), ALONE, table.parent)
    assert same(read(table.parent), meant) and same(read(table.parent), meant)


@pytest.mark.parametrize(("task", "label"), [("classification", "town"), ("regression", "age")])
@pytest.mark.parametrize("key", ["who", None])
def test_labels_too(table: Path, task: str, label: str, key: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    how = CsvLabels.model_validate(
        {"source": "csv", "path": "table.csv", "key": key, "label": label, "missing": "drop"}
    )
    found: list[LabelColumn] = []
    for writes in (False, True, True):
        cache = TableCache(table.parent, writes=writes)
        found.append(load_labels(how, table.parent, task, cache))  # type: ignore[arg-type]
        cache.keep()
    for one in found[1:]:
        assert torch.equal(one.values, found[0].values) and (one.ids, one.classes, one.dropped) == (
            found[0].ids, found[0].classes, found[0].dropped,
        )  # fmt: skip
    assert found[0].dropped == 1 and (table.parent / "tables" / "labels.safetensors").exists()
