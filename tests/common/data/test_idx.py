import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade.common.config.data.columns import AllSplit, ColumnsSplit, ImageRowsSplit, PartyIndex, PatchesSplit
from colonnade.common.data.formats import unpack
from colonnade.common.data.formats.idx import IdxImages, holds, read_labels
from colonnade.common.data.split import part_of
from colonnade.common.errors import DataError
from tests.support.idx import write_idx


@pytest.mark.parametrize("chunk", [1, 2, 3, 512])
def test_reads_the_chosen_pixels(
    idx_folder: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(unpack, "CHUNK", chunk)
    source = IdxImages(idx_folder)
    assert source.shape == (4, 3) and source.official_test == 3
    bands = source.read(part_of(ImageRowsSplit(), source.shape, (), PartyIndex(1, 2)))
    assert bands.dtype == torch.uint8
    np.testing.assert_array_equal(bands.numpy(), images[:, 2:])
    patch = source.read(part_of(PatchesSplit(grid=(2, 3)), source.shape, (), PartyIndex(4, 6)))
    np.testing.assert_array_equal(patch.numpy(), images[:, 2:, 1:2])


def test_names_give_the_place_of_a_pixel(idx_folder: Path) -> None:
    source = IdxImages(idx_folder)
    part = part_of(ColumnsSplit(take=("pixel_3_1",)), source.shape, source.names, PartyIndex(0, 1))
    assert part.positions.tolist() == [10]


def test_reads_the_labels(idx_folder: Path) -> None:
    values, official_test = read_labels(idx_folder)
    assert values.tolist() == [0, 1, 0, 1, 1, 0, 1, 0] and values.dtype == torch.int64
    assert official_test == 3


def test_a_party_needs_no_labels_and_the_server_no_images(idx_folder: Path) -> None:
    whole = sorted(path.name for path in idx_folder.iterdir())
    for name in whole[:]:
        if "labels" in name:
            (idx_folder / name).rename(idx_folder / f"away-{name}")
    assert holds(idx_folder, "images-idx3") and not holds(idx_folder, "labels-idx1")
    assert len(IdxImages(idx_folder).read(part_of(AllSplit(), (4, 3), (), PartyIndex(0, 1)))) == 8
    for name in whole:
        if "labels" in name:
            (idx_folder / f"away-{name}").rename(idx_folder / name)
        else:
            (idx_folder / name).unlink()
    assert len(read_labels(idx_folder)[0]) == 8


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no train-images-idx3-ubyte\(\.gz\)"):
        IdxImages(tmp_path)


def read_everything(folder: Path) -> None:
    source = IdxImages(folder)
    source.read(part_of(AllSplit(), source.shape, source.names, PartyIndex(0, 1)))
    read_labels(folder)


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"])
@pytest.mark.parametrize(("change", "message"), [
    (lambda raw: raw[:-1], "shorter than the"),
    (lambda raw: raw + b"\0", "longer than the"),
    (lambda raw: b"\0\0\x0d" + raw[3:], "is no idx file of .* header is 00000d0"),
    (lambda raw: raw[:6], r"is no idx file of .* header is 0000080\d0000$"),
    (lambda _: b"", "is no idx file of .* header is empty"),
])  # fmt: skip
def test_refuses_a_file(idx_folder: Path, name: str, change: Callable[[bytes], bytes], message: str) -> None:
    path = idx_folder / name
    packed = path.suffix == ".gz"
    raw = change(gzip.decompress(path.read_bytes()) if packed else path.read_bytes())
    path.write_bytes(gzip.compress(raw) if packed else raw)
    with pytest.raises(DataError, match=message) as caught:
        read_everything(idx_folder)
    assert name in str(caught.value)


@pytest.mark.parametrize("cut", [5, 40, -3])
def test_refuses_a_damaged_archive(idx_folder: Path, cut: int) -> None:
    path = idx_folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"train-images.* cannot be read"):
        read_everything(idx_folder)


def test_refuses_a_file_that_is_no_archive(idx_folder: Path) -> None:
    (idx_folder / "train-images-idx3-ubyte.gz").write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match="cannot be read"):
        read_everything(idx_folder)


@pytest.mark.parametrize("read", [IdxImages, read_labels])
def test_refuses_images_and_labels_of_different_counts(idx_folder: Path, read: Callable[[Path], object]) -> None:
    write_idx(idx_folder, "t10k-labels-idx1-ubyte", np.zeros(4))
    with pytest.raises(DataError, match=r"t10k-\w+-idx\d-ubyte(.gz)? has . rows, .* beside it"):
        read(idx_folder)


def test_refuses_parts_of_different_sizes(idx_folder: Path) -> None:
    write_idx(idx_folder, "t10k-images-idx3-ubyte.gz", np.zeros((3, 5, 3)))
    with pytest.raises(DataError, match=r"size \(4, 3\), test images \(5, 3\)"):
        IdxImages(idx_folder)


@pytest.mark.papers
def test_a_party_of_mnist_never_holds_the_images(data_root: Path) -> None:
    source = IdxImages(data_root / "mnist")
    part = part_of(ImageRowsSplit(), source.shape, (), PartyIndex(6, 14))
    tracemalloc.start()
    values = source.read(part)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert values.shape == (70_000, 2, 28)
    assert peak < values.numel() + 2_000_000
    raw = gzip.decompress((data_root / "mnist/t10k-images-idx3-ubyte.gz").read_bytes())
    expected = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28)[:, 12:14]
    np.testing.assert_array_equal(values[60_000:].numpy(), expected)


@pytest.mark.papers
@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion-mnist", [6000] * 10),
    ],
)
def test_labels_of_the_papers(data_root: Path, name: str, counts: list[int]) -> None:
    values, official_test = read_labels(data_root / name)
    assert official_test == 10_000
    assert values[:-official_test].bincount().tolist() == counts
