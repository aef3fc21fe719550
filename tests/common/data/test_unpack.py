"""The cache of unpacked copies: made once, complete, and only for the packed file's state."""

from __future__ import annotations

import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from colonnade.common.data.formats import unpack
from colonnade.common.data.formats.unpack import unpacked


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(unpack, "cache", lambda: tmp_path / "cache")
    path = tmp_path / "noise.gz"
    path.write_bytes(gzip.compress(os.urandom(2 << 20), compresslevel=0))
    return path


def test_the_copy_is_the_content_and_is_made_once(packed: Path) -> None:
    copy = unpacked(packed)
    assert copy.read_bytes() == gzip.decompress(packed.read_bytes())
    made = copy.stat().st_mtime_ns
    assert unpacked(packed) == copy and copy.stat().st_mtime_ns == made


def test_a_changed_file_gets_a_new_copy_though_its_size_and_time_are_the_same(packed: Path) -> None:
    first, before = unpacked(packed), packed.stat()
    content = gzip.compress(bytes(2 << 20), compresslevel=0)
    while packed.stat().st_ctime_ns == before.st_ctime_ns:  # a file system's clock has ticks
        packed.write_bytes(content)
        os.utime(packed, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert packed.stat().st_size == before.st_size
    assert unpacked(packed) != first and unpacked(packed).read_bytes() == bytes(2 << 20)


def test_concurrent_callers_get_the_same_complete_copy(packed: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        copies = list(pool.map(unpacked, [packed] * 8))
    assert len(set(copies)) == 1 and copies[0].stat().st_size == 2 << 20
    assert not list(copies[0].parent.glob(f"*.{os.getpid()}"))


def test_a_damaged_file_leaves_nothing_behind(packed: Path) -> None:
    packed.write_bytes(packed.read_bytes()[:-100])
    with pytest.raises(EOFError):
        unpacked(packed)
    assert [p.suffix for p in (packed.parent / "cache" / "unpacked").iterdir()] == [".lock"]


def test_without_a_cache_the_file_itself_is_read(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "mkdir", refuse)
    assert unpacked(packed) == packed
