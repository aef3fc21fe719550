import hashlib
from pathlib import Path

import pytest

from colonnade.common.data.known_sets import catalogue
from colonnade.common.data.known_sets.catalogue import KNOWN, DataFile, known, presence
from colonnade.common.errors import DataError

FILES = [(name, file) for name, data_set in KNOWN.items() for file in data_set.files]


@pytest.mark.parametrize("name", KNOWN)
def test_every_set_can_be_got_somehow(name: str) -> None:
    data_set = KNOWN[name]
    ways = [not data_set.files, bool(data_set.origins), bool(data_set.archive), bool(data_set.by_hand)]
    assert sum(ways) == 1
    assert all(origin.endswith("/") for origin in data_set.origins)
    assert all(len(bytes.fromhex(file.sha256)) == 32 for file in data_set.files)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(DataError, match=r"no data set 'fashion-mnst' \(did you mean 'fashion-mnist'\?\)"):
        known("fashion-mnst")


def test_presence_counts_packed_and_unpacked_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "cache", lambda: tmp_path / "cache")
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path / "data"))
    assert presence("cifar10", KNOWN["cifar10"]) is None
    folder = tmp_path / "data" / "cifar10"
    folder.mkdir(parents=True)
    for name in ("data_batch_1.bin", "data_batch_2.bin.xz", "data_batch_9.bin"):
        (folder / name).touch()
    found = presence("cifar10", KNOWN["cifar10"])
    assert found is not None and (found.folder, found.files) == (folder, 2)


@pytest.mark.papers
@pytest.mark.parametrize(("name", "file"), FILES, ids=lambda value: getattr(value, "name", value))
def test_checksums_are_those_of_the_files(data_root: Path, name: str, file: DataFile) -> None:
    path = data_root / name / file.name
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    assert path.stat().st_size == file.bytes
    assert hashlib.sha256(path.read_bytes()).hexdigest() == file.sha256
