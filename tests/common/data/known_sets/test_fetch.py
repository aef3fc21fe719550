from __future__ import annotations

import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from colonnade.common.data.known_sets import catalogue
from colonnade.common.data.known_sets import fetch as fetch_module
from colonnade.common.data.known_sets.catalogue import KNOWN, Archive, DataFile, DataSet, known, presence
from colonnade.common.data.known_sets.fetch import fetch
from colonnade.common.errors import DataError, EnvironmentFault

BYTES = b"a small data set\n" * 100


class Handler(SimpleHTTPRequestHandler):
    asked: list[str]

    def log_message(self, format: str, *args: object) -> None:
        self.asked.append(self.path)


class Server(ThreadingHTTPServer):
    asked: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Serves tmp_path/served; `asked` lists the requests."""
    (tmp_path / "served").mkdir()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    handler = type("Recording", (Handler,), {"asked": []})
    with Server(("127.0.0.1", 0), partial(handler, directory=tmp_path / "served")) as http:
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        http.asked = handler.asked
        yield http
        http.shutdown()


@pytest.fixture
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DataSet:
    """A known set of one file, which the server has."""
    (tmp_path / "served" / "tiny.bin").write_bytes(BYTES)
    file = DataFile("tiny.bin", len(BYTES), hashlib.sha256(BYTES).hexdigest())
    data_set = DataSet("Tiny", 1, "none", (file,), (server.url,))
    monkeypatch.setitem(KNOWN, "tiny", data_set)
    return data_set


def test_downloads_and_checks(tiny: DataSet, tmp_path: Path) -> None:
    said: list[str] = []
    folder = fetch("tiny", tmp_path / "into", said.append)
    assert folder == tmp_path / "into" / "tiny"
    assert (folder / "tiny.bin").read_bytes() == BYTES
    assert said == ["tiny.bin (0.0 MB)"]


def test_the_cache_is_the_default(tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "cache", lambda: tmp_path / "cache")
    assert fetch("tiny") == tmp_path / "cache" / "tiny"


def test_existing_files_are_not_downloaded_again_unless_broken(tiny: DataSet, server: Server, tmp_path: Path) -> None:
    folder = fetch("tiny", tmp_path)
    fetch("tiny", tmp_path)
    assert len(server.asked) == 1
    (folder / "tiny.bin").write_bytes(b"half")
    fetch("tiny", tmp_path)
    assert (folder / "tiny.bin").read_bytes() == BYTES


def assert_one_line(caught: pytest.ExceptionInfo[EnvironmentFault], *parts: str) -> None:
    text = str(caught.value)
    assert all(part in text for part in parts) and "\n" not in text and caught.value.hint


def test_refuses_other_bytes(tiny: DataSet, server: Server, tmp_path: Path) -> None:
    (tmp_path / "served" / "tiny.bin").write_bytes(BYTES[:-1])
    with pytest.raises(EnvironmentFault) as caught:
        fetch("tiny", tmp_path / "into")
    assert_one_line(caught, "tiny.bin could not be fetched", f"{server.url}tiny.bin", "another checksum")
    assert list((tmp_path / "into" / "tiny").iterdir()) == []


def test_says_why_it_failed(tiny: DataSet, tmp_path: Path) -> None:
    (tmp_path / "served" / "tiny.bin").unlink()
    with pytest.raises(EnvironmentFault) as caught:
        fetch("tiny", tmp_path / "into")
    assert_one_line(caught, "404")


def test_no_listening_server(tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, origins=("http://127.0.0.1:1/",)))
    with pytest.raises(EnvironmentFault) as caught:
        fetch("tiny", tmp_path / "into")
    assert_one_line(caught, "http://127.0.0.1:1/tiny.bin", "refused")


def test_the_next_address_is_tried(
    tiny: DataSet, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origins = (f"{server.url}gone/", server.url)
    monkeypatch.setitem(KNOWN, "tiny", replace(tiny, origins=origins))
    assert (fetch("tiny", tmp_path / "into") / "tiny.bin").read_bytes() == BYTES


@pytest.fixture
def packed(tiny: DataSet, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """The same set in an archive, which a function writes with given bytes."""

    def pack(content: bytes) -> None:
        path = tmp_path / "served" / "tiny.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for name in ("tiny-1/readme", "tiny-1/tiny.bin"):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        digest = f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
        where = Archive(f"{server.url}tiny.tar.gz", digest, "tiny-1")
        monkeypatch.setitem(KNOWN, "tiny", replace(tiny, origins=(), archive=where))

    return pack


def test_unpacks_what_belongs_to_the_set(packed: Callable[[bytes], None], server: Server, tmp_path: Path) -> None:
    packed(BYTES)
    folder = fetch("tiny", tmp_path / "into")
    assert [path.name for path in folder.iterdir()] == ["tiny.bin"]
    assert (folder / "tiny.bin").read_bytes() == BYTES
    fetch("tiny", tmp_path / "into")
    assert len(server.asked) == 1


@pytest.mark.parametrize("as_archive", [True, False])
def test_a_folder_that_cannot_be_made(packed: Callable[[bytes], None], tmp_path: Path, as_archive: bool) -> None:
    if as_archive:
        packed(BYTES)
    (tmp_path / "into").write_text("a file is in the way")
    with pytest.raises(EnvironmentFault) as caught:
        fetch("tiny", tmp_path / "into")
    assert_one_line(caught, f"{tmp_path}/into/tiny cannot be written")


def test_refuses_an_archive_with_other_bytes(packed: Callable[[bytes], None], tmp_path: Path) -> None:
    packed(BYTES[:-1])
    with pytest.raises(EnvironmentFault, match="holds other bytes"):
        fetch("tiny", tmp_path / "into")
    assert not (tmp_path / "into" / "tiny").exists()


def test_refuses_an_archive_with_another_checksum(packed: Callable[[bytes], None], tmp_path: Path) -> None:
    packed(BYTES)
    (tmp_path / "served" / "tiny.tar.gz").write_bytes(b"something else")
    with pytest.raises(EnvironmentFault, match="another checksum"):
        fetch("tiny", tmp_path / "into")


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("mnits", "did you mean 'mnist'", "colonnade datasets"),
        ("digits", "comes with scikit-learn", "{source: sklearn, name: digits}"),
        ("scene15", "cannot be downloaded", "Scene_15.mat"),
    ],
)
def test_sets_that_cannot_be_fetched(name: str, message: str, hint: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        fetch(name)
    assert hint in caught.value.hint


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
