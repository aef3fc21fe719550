"""Downloads of known sets, verified by checksum."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pooch

from colonnade.common.data.known_sets.catalogue import Archive, DataFile, DataSet, cache, known
from colonnade.common.errors import DataError, EnvironmentFault
from colonnade.common.run.activity import Activity, activity

_TIMEOUT = 30.0
_CHUNK = 1 << 16

Say = Callable[[str], None]


def fetch(name: str, into: Path | None = None, say: Say = lambda _: None) -> Path:
    """Downloads a known set into its folder; files already present with the right checksum are skipped.

    Args:
        into: parent of the folder `name`; None means the cache, where sources look.
        say: receives progress messages, line by line.

    Raises:
        DataError: no such set, or one that cannot be downloaded.
        EnvironmentFault: no address served the right bytes, or the folder cannot be written.
    """
    data_set = known(name)
    if not data_set.files:
        raise DataError(f"{name} comes with scikit-learn", hint=f"use it: {{source: sklearn, name: {name}}}")
    if not data_set.origins and not data_set.archive:
        raise DataError(f"{name} cannot be downloaded", hint=f"{data_set.by_hand} and put it into {name}/")
    folder = (into or cache()) / name
    try:
        if data_set.archive:
            _fetch_archive(data_set, data_set.archive, folder, say)
        else:
            _fetch_files(data_set, folder, say)
    except OSError as error:
        raise EnvironmentFault(f"{folder} cannot be written: {error}", hint="choose another folder") from error
    return folder


def _fetch_files(data_set: DataSet, folder: Path, say: Say) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in data_set.files:
        say(f"{file.name} ({file.bytes / 1e6:.1f} MB)")
        failures: list[str] = []
        for origin in data_set.origins:
            failure = _retrieve(origin + file.name, f"sha256:{file.sha256}", folder / file.name)
            if failure is None:
                break
            failures.append(failure)
        else:
            raise _fault(file.name, failures)


def _fetch_archive(data_set: DataSet, archive: Archive, folder: Path, say: Say) -> None:
    if all(_is_there(folder, file) for file in data_set.files):
        return
    with TemporaryDirectory() as scratch:
        packed = Path(scratch) / "archive.tar.gz"
        say(archive.url)
        if failure := _retrieve(archive.url, archive.hash, packed):
            raise _fault(archive.url, [failure])
        members = [f"{archive.folder}/{file.name}" for file in data_set.files]
        pooch.Untar(members=members, extract_dir=".")(str(packed), "download", None)
        for member, file in zip(members, data_set.files, strict=True):
            if not _is_there((Path(scratch) / member).parent, file):
                raise _fault(file.name, [f"{archive.url} holds other bytes"])
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(f"{scratch}/{member}", folder / file.name)


def _is_there(folder: Path, file: DataFile) -> bool:
    path = folder / file.name
    return path.is_file() and pooch.file_hash(str(path)) == file.sha256


def _retrieve(url: str, checksum: str, path: Path) -> str | None:
    """Downloads one file unless it is present; returns the error in one line, or None."""
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        with activity(f"fetching {path.name}", unit="MB") as doing:
            loader = pooch.HTTPDownloader(timeout=_TIMEOUT, chunk_size=_CHUNK, progressbar=_Bar(doing))
            pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=loader)
    except ValueError:
        return f"{url} served bytes with another checksum"
    except OSError as error:  # requests' errors are OSErrors too
        return f"{url}: {type(error).__name__}: {error}".splitlines()[0]
    return None


class _Bar:
    """A progress bar for pooch, which counts bytes and sets `total`."""

    def __init__(self, doing: Activity) -> None:
        self._doing, self._bytes, self.total = doing, 0, 0

    def update(self, count: int) -> None:
        self._bytes += count
        self._doing.total, self._doing.done = (round(size / 1e6) for size in (self.total, self._bytes))

    def reset(self) -> None:
        self._bytes = 0

    def close(self) -> None:
        pass


def _fault(what: str, failures: list[str]) -> EnvironmentFault:
    return EnvironmentFault(
        f"{what} could not be fetched: {'; '.join(failures)}",
        hint="check the network, or put the file there yourself and set COLONNADE_DATA",
    )
