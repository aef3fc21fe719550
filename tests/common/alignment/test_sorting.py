"""Files of records, and external sorting."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.alignment.scratch import Records, Scratch, Sorter
from colonnade.common.errors import EnvironmentFault, InputError


def records(rows: list[bytes], width: int) -> Records:
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, width)


@given(st.lists(st.binary(min_size=6, max_size=6), max_size=80), st.integers(1, 9), st.sampled_from([1, 3, 20, 1000]))
def test_all_records_come_back_in_the_order_of_their_first_bytes(
    rows: list[bytes], at_a_time: int, bucket: int
) -> None:
    sorter = Sorter(max(len(rows), 1), 4, 6, None, bucket)
    for at in range(0, len(rows), at_a_time):
        sorter.add(records(rows[at : at + at_a_time], 6))
    came = [record.tobytes() for some in sorter.sorted() for record in some]
    assert sorted(came) == sorted(rows) and [row[:4] for row in came] == sorted(row[:4] for row in rows)


def test_buckets_are_small_and_those_of_chosen_bytes_are_refused() -> None:
    rows, rng = 40_000, np.random.default_rng(0)
    sorter = Sorter(rows, 8, 8, None, 1000)
    sorter.add(rng.integers(0, 256, (rows, 8), dtype=np.uint8))
    pieces = [len(some) for some in sorter.sorted()]
    assert len(pieces) == 64 and sum(pieces) == rows and max(pieces) < 1000
    chosen = np.hstack([np.full((rows, 1), 7, dtype=np.uint8), rng.integers(0, 256, (rows, 7), dtype=np.uint8)])
    with pytest.raises(InputError, match="begin with the same bytes"):
        Sorter(rows, 8, 8, None, 1000).add(chosen)


@given(st.data())
def test_a_file_is_an_array(data: st.DataObject) -> None:
    whole, file = np.zeros((30, 5), dtype=np.uint8), Scratch(5)
    file.write(0, whole)
    for _ in range(data.draw(st.integers(0, 5))):
        at, rows = data.draw(st.integers(0, 20)), data.draw(st.lists(st.binary(min_size=5, max_size=5), max_size=10))
        whole[at : at + len(rows)] = records(rows, 5)
        file.write(at, records(rows, 5))
    at, some = data.draw(st.integers(0, 20)), data.draw(st.lists(st.integers(0, 29)))
    assert np.array_equal(file.read(at, 10), whole[at : at + 10])
    assert np.array_equal(file.pick(np.array(some, dtype=np.int64)), whole[some])


def test_a_file_has_no_name_is_its_owners_and_is_gone_with_its_object(tmp_path: Path) -> None:
    file = Scratch(4, tmp_path)
    file.write(1000, np.ones((1000, 4), dtype=np.uint8))
    assert not list(tmp_path.iterdir())
    (opened,) = opened_in(tmp_path)
    assert opened.stat().st_mode & 0o777 == 0o600
    del file
    assert not opened_in(tmp_path)


def opened_in(folder: Path) -> list[Path]:
    """This process's descriptors of files there, whether they have a name or not."""
    return [
        each for each in Path("/proc/self/fd").iterdir() if each.is_symlink() and str(folder) in str(each.readlink())
    ]


def test_a_disk_error_names_the_folder(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=f"by way of {tmp_path / 'none'}: No such file"):
        Scratch(4, tmp_path / "none")
    with pytest.raises(EnvironmentFault, match="ends early"):
        Scratch(4, tmp_path).read(0, 1)
