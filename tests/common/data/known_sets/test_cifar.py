"""Batches of CIFAR-10 in small: a few rows a file, packed or not."""

import gzip
import lzma
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import (
    AllSplit,
    ColumnsSplit,
    HalvesSplit,
    ImageRowsSplit,
    PartyIndex,
    PatchesSplit,
)
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.config.models import ModelConfig
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data.formats import unpack
from colonnade.common.data.known_sets.cifar import CifarImages, holds, read_labels
from colonnade.common.data.rows import partition
from colonnade.common.data.sources import load_features, load_labels, prepare
from colonnade.common.data.split import part_of
from colonnade.common.errors import DataError
from colonnade.common.models.build import build_model
from tests.support.seeded import seeded

ALONE = PartyIndex(0, 1)
COUNTS = {"data_batch_1.bin": 5, "data_batch_2.bin.xz": 3, "data_batch_3.bin.gz": 2, "test_batch.bin.xz": 4}
LABELS = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 0, 9, 0]
data = TypeAdapter(DataConfig).validate_python
labels = TypeAdapter(LabelConfig).validate_python
model = TypeAdapter(ModelConfig).validate_python


@pytest.fixture
def images() -> np.ndarray:
    """(14, 3, 32, 32) bytes, the last four of the test batch."""
    return np.random.default_rng(0).integers(0, 256, (14, 3, 32, 32), np.uint8)


def write(path: Path, raw: bytes) -> None:
    packers = {".xz": lzma.compress, ".gz": gzip.compress}
    path.write_bytes(packers[path.suffix](raw) if path.suffix in packers else raw)


@pytest.fixture
def folder(tmp_path: Path, images: np.ndarray) -> Path:
    """A set of ten training and four test rows; the fourth and fifth training batch are not there."""
    made = tmp_path / "tiny"
    made.mkdir()
    first = 0
    for name, count in COUNTS.items():
        rows = range(first, first + count)
        write(made / name, b"".join(bytes([LABELS[row]]) + images[row].tobytes() for row in rows))
        first += count
    return made


@pytest.mark.parametrize("chunk", [1, 3, 512])
def test_parts_are_those_of_the_images(
    folder: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(unpack, "CHUNK", chunk)
    source = CifarImages(folder)
    assert source.shape == (3, 32, 32) and source.official_test == 4
    band = source.read(part_of(ImageRowsSplit(), source.shape, (), PartyIndex(2, 4)))
    assert band.dtype == torch.uint8
    np.testing.assert_array_equal(band.numpy(), images[:, :, 16:24])
    patch = source.read(part_of(PatchesSplit(grid=(3, 3)), source.shape, (), PartyIndex(5, 9)))
    np.testing.assert_array_equal(patch.numpy(), images[:, :, 11:22, 22:])
    half = source.read(part_of(HalvesSplit(side="right"), source.shape, (), ALONE))
    np.testing.assert_array_equal(half.numpy(), images[..., 16:])
    whole = source.read(part_of(AllSplit(), source.shape, (), ALONE))
    np.testing.assert_array_equal(whole.numpy(), images)


def test_names_give_the_place_of_a_value(folder: Path, images: np.ndarray) -> None:
    source = CifarImages(folder)
    part = part_of(ColumnsSplit(take=("green_3_1", "blue_31_30")), source.shape, source.names, ALONE)
    np.testing.assert_array_equal(source.read(part).numpy(), images[:, [1, 2], [3, 31], [1, 30]])
    assert len(set(source.names)) == 3072


def test_configuration_keys(folder: Path, images: np.ndarray) -> None:
    """The test batch is the official test part of both sides; bytes are scaled as configured."""
    config = data({"source": "cifar", "folder": "tiny", "scale": {"mean": 0.5, "std": 0.25}})
    features = load_features(config, PartyIndex(3, 4), folder.parent)
    found = load_labels(labels({"source": "cifar", "folder": "tiny"}), folder.parent)
    assert found.values.tolist() == LABELS and found.values.dtype == torch.int64
    assert found.official_test == features.official_test == 4
    assert found.classes[3] == "cat" and len(found.classes) == 10
    parts = partition(14, 4, RowsConfig(validation=0, test="official"), seed=0)
    assert parts.test.tolist() == [10, 11, 12, 13]
    columns = prepare(config, features, parts.train, 0, "ada")
    expected = (images[[1, 7], :, 24:] / 255 - 0.5) / 0.25
    torch.testing.assert_close(columns[torch.tensor([1, 7])], torch.tensor(expected, dtype=torch.float32))


@pytest.mark.parametrize("name", ["mlp", "cnn", "lenet", "resnet18"])
def test_towers_take_a_party_s_part(folder: Path, name: str) -> None:
    config = data({"source": "cifar", "folder": str(folder)})
    features = load_features(config, PartyIndex(0, 4), Path())
    columns = prepare(config, features, torch.arange(10), 0, "ada")
    tower = build_model(model({"name": name, "embedding": 6}), columns.shape[1:], seeded(0))
    made = tower(columns[torch.arange(3)])
    assert columns.shape == (14, 3, 8, 32) and made.shape == (3, 6) and made.isfinite().all()


def test_the_first_batches_are_enough_but_none_between_may_be_missing(folder: Path, images: np.ndarray) -> None:
    (folder / "data_batch_3.bin.gz").unlink()
    whole = part_of(AllSplit(), (3, 32, 32), (), ALONE)
    np.testing.assert_array_equal(CifarImages(folder).read(whole).numpy(), np.delete(images, [8, 9], axis=0))
    (folder / "data_batch_2.bin.xz").rename(folder / "data_batch_4.bin.xz")
    for read in (CifarImages, read_labels):
        with pytest.raises(DataError, match=r"tiny has no data_batch_2\.bin\(\.xz\)"):
            read(folder)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "test_batch.bin.xz"])
def test_a_folder_without_the_first_or_the_test_batch_is_no_such_set(folder: Path, name: str) -> None:
    assert holds(folder)
    (folder / name).unlink()
    assert not holds(folder)
    with pytest.raises(DataError, match=r"tiny is a folder, and no batches of CIFAR-10"):
        load_labels(labels({"source": "cifar", "folder": str(folder)}), Path())
    with pytest.raises(DataError, match=rf"has no {name.partition('.')[0]}\.bin"):
        CifarImages(folder)


@pytest.mark.parametrize("name", ["data_batch_1.bin", "data_batch_2.bin.xz"])
@pytest.mark.parametrize(("rows", "size"), [(b"", 0), (b"\0" * 3072, 3072), (b"\0" * 6147, 6147)])
def test_refuses_a_file_that_is_not_made_of_rows(folder: Path, name: str, rows: bytes, size: int) -> None:
    write(folder / name, rows)
    with pytest.raises(DataError, match=rf"{name} has {size} bytes, which are no rows of 3073"):
        CifarImages(folder)


@pytest.mark.parametrize("change", [lambda raw: raw[:-20], lambda _raw: b"<html>not found</html>"])
def test_refuses_a_damaged_archive(folder: Path, change) -> None:
    path = folder / "data_batch_2.bin.xz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=r"data_batch_2\.bin\.xz cannot be read"):
        CifarImages(folder)


def test_refuses_a_label_that_is_none(folder: Path) -> None:
    write(folder / "data_batch_2.bin.xz", bytes([10]) + bytes(3072))
    with pytest.raises(DataError, match="tiny: row 5 has the label 10, of 10 classes"):
        read_labels(folder)


@pytest.mark.papers
def test_a_party_never_holds_the_images(data_root: Path, tmp_path: Path) -> None:
    """One training batch, since unpacking each takes seconds where no copy is kept."""
    for name in ("data_batch_1", "test_batch"):
        path = next((data_root / "cifar10").glob(f"{name}.bin*"))
        (tmp_path / path.name).symlink_to(path)
    source = CifarImages(tmp_path)
    part = part_of(ImageRowsSplit(), source.shape, (), PartyIndex(1, 16))
    tracemalloc.start()
    values = source.read(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.shape == (20_000, 3, 2, 32) and peak < values.numel() + 4_000_000
    found, official_test = read_labels(tmp_path)
    assert official_test == 10_000 and len(found) == 20_000
    assert found[-official_test:].bincount().tolist() == [1000] * 10
