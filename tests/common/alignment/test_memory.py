"""Memory of an alignment: constant in the number of keys. Without exponentiations, so that there can be many."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import overload

import pytest
from torch import Tensor

from colonnade.client.alignment.matching import Matching
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import alignment_limits
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation import inprocess
from colonnade.common.crypto import raising
from colonnade.common.crypto.group import Secret
from colonnade.common.crypto.sealing import Session
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.relay import Aligning
from tests.support import warm
from tests.support.alignment import KINDS, federation, hash_cheaply, raise_cheaply

pytestmark = pytest.mark.slow

FEW, MANY = 15_000, 45_000
SLACK = 8 * 2**20
"""Bytes that may be in between: 93 a key and member. Lists in memory took some 170."""


class Table(Sequence[str]):
    """The ids of a member's rows, which take no memory: in another order than the next member's."""

    def __init__(self, rows: int, member: int) -> None:
        self._rows, self._member = rows, member

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> list[str]: ...
    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(self._rows))]
        if row >= self._rows:
            raise IndexError(row)
        return f"person {(row * 7919 % self._rows + self._member * self._rows // 10) % (self._rows * 11 // 10)}"


@contextmanager
def peak_of_memory() -> Iterator[list[int]]:
    """The most anonymous memory that this process has meanwhile, in bytes."""
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            status = Path("/proc/self/status").read_text()
            peak[0] = max(peak[0], 1024 * int(status.split("RssAnon:")[1].split()[0]))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        over.set()
        watcher.join()


async def align(keys: Sequence[RowKeys], names: list[str], folder: Path) -> list[Tensor]:
    agreed, session = federation(len(names)), Session()
    cohort, links = inprocess.connect(names, KINDS, alignment_limits(len(names) + 1))
    keep = [AlignmentRecord(RunCache(folder / str(member)), own, "a member").keep for member, own in enumerate(keys)]
    parties = [
        Matching(name, agreed, PolicyConfig(), own, session, links[name], keep=kept)()
        for name, own, kept in zip(names, keys[1:], keep[1:], strict=True)
    ]
    return await asyncio.gather(Aligning(agreed, keys[0], session, cohort, keep[0])(), *parties)


def main(rows: int, folder: Path) -> None:
    """Prints by how many bytes an alignment raises this process's memory at most."""
    Secret.raise_all, Secret.inverse = raise_cheaply, lambda own: own  # type: ignore[method-assign]
    raising.hash_to_curve = hash_cheaply
    agreed = federation(2)
    with peak_of_memory() as peak:
        while not peak[0]:
            continue
        before = peak[0]
        keys = [RowKeys.of(Table(rows, n), KeysConfig(), f"member {n}", folder) for n in range(3)]
        found = inprocess.run_virtual(align(keys, list(agreed.names), folder))
    assert [len(own) for own in found] == [rows * 8 // 10] * 3
    persons = [[own.values[row] for row in which[::97].tolist()] for own, which in zip(keys, found, strict=True)]
    assert persons[0] == persons[1] == persons[2]
    print(peak[0] - before)


def raised_by(rows: int, folder: Path) -> int:
    """In a process of its own: what a worker of the tests did before leaves holes in its memory, which hide growth."""
    code = f"from pathlib import Path; from {__name__} import main; main({rows}, Path({str(folder)!r}))"
    return int(warm.run([sys.executable, "-c", code], cwd=warm.ROOT, capture_output=True).stdout)


def test_memory_does_not_grow_with_keys(tmp_path: Path) -> None:
    few, many = (raised_by(rows, tmp_path) for rows in (FEW, MANY))
    assert many - few < SLACK
