"""Codes of aligned rows: drawn once by key, although every alignment numbers rows anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from colonnade.client.privacy.codes import PLACES, KeptCodes, PlacedRelease, RowPlaces
from colonnade.common.errors import CheckpointError, EnvironmentFault, InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.subsets import SubsetSelection

NOISE = SubsetSelection(10, 1, 1.0)  # nearly every second draw of a row would differ
KEYS = tuple(f"row {number}" for number in range(300))


def places(folder: Path, keys: Sequence[str] = KEYS, *, predicts: bool = False) -> RowPlaces:
    return RowPlaces(folder / PLACES, keys, len(KEYS), predicts=predicts)


def released(folder: Path, keys: Sequence[str], *, predicts: bool, seed: int) -> dict[str, tuple[float, ...]]:
    """Sets of all rows by key, as a start of the party releases them that knows nothing but its folder."""
    there = places(folder, keys, predicts=predicts)
    later, bits = there.later, random.Random(seed).randbytes
    kept = KeptCodes(folder / "codes", NOISE, there.total, begun=predicts, bits=bits, later=later)

    def stage(private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        assert evaluation and rows is not None
        return Released(kept.release(rows, private.argmax(1)), "test", None)

    codes = torch.eye(10)[torch.randint(10, (len(keys),), generator=torch.Generator().manual_seed(seed))]
    sets = PlacedRelease(there, stage)(codes, evaluation=True, rows=torch.arange(len(keys)))
    return dict(zip(keys, map(tuple, sets.tolist()), strict=True))


def test_a_row_keeps_its_set_under_any_number_and_a_new_row_gets_one_and_keeps_it(tmp_path: Path) -> None:
    first = released(tmp_path, KEYS, predicts=False, seed=1)
    keys = [*(f"new {number}" for number in range(200)), *reversed(KEYS[::2])]
    second = released(tmp_path, keys, predicts=True, seed=2)
    third = released(tmp_path, sorted(second), predicts=True, seed=3)
    assert {key: second[key] for key in KEYS[::2]} == {key: first[key] for key in KEYS[::2]}
    assert third == second
    fresh = [key for key in second if key not in first]
    assert len({second[key] for key in fresh}) == 10  # drawn, and not what an empty line would be
    assert released(tmp_path, KEYS, predicts=False, seed=4) == first


def test_nothing_is_written_before_a_row_is_released(tmp_path: Path) -> None:
    there = places(tmp_path)
    assert not list(tmp_path.iterdir())
    there.of(torch.tensor([0]))
    before = (tmp_path / PLACES).read_bytes()
    grown = places(tmp_path, ["new"], predicts=True)
    assert (tmp_path / PLACES).read_bytes() == before
    assert grown.of(torch.tensor([0])).tolist() == [len(KEYS)]
    assert (tmp_path / PLACES).read_bytes() != before


def test_a_full_disk_gives_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = places(tmp_path)

    def full(path: Path, *_: object, **_more: object) -> None:
        raise EnvironmentFault(f"{path} cannot be written")

    with monkeypatch.context() as broken:
        broken.setattr("colonnade.common.run.run_cache.write_kept", full)
        for _ in range(2):
            with pytest.raises(EnvironmentFault):
                there.of(torch.tensor([0]))
    assert there.of(torch.tensor([0])).tolist() == [0] and (tmp_path / PLACES).exists()


@pytest.mark.parametrize("row", [-1, 300])
def test_a_row_outside_the_range_is_refused(tmp_path: Path, row: int) -> None:
    with pytest.raises(InputError, match="0 to 299"):
        places(tmp_path).of(torch.tensor([5, row]))
    assert not list(tmp_path.iterdir())


def test_lost_altered_and_foreign_places_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="missing"):
        places(tmp_path, predicts=True)
    places(tmp_path).of(torch.tensor([0]))
    for keys in (KEYS[::-1], KEYS[1:]):  # another alignment of the run
        with pytest.raises(CheckpointError, match="other rows"):
            places(tmp_path, keys)
    content = (tmp_path / PLACES).read_bytes()
    for broken in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b""):
        (tmp_path / PLACES).write_bytes(broken)
        with pytest.raises(CheckpointError, match="torn or was altered"):
            places(tmp_path, predicts=True)


def test_an_older_copy_of_the_places_beside_newer_draws_is_refused(tmp_path: Path) -> None:
    """Its new rows would get the places, and with them the sets, of others."""
    released(tmp_path, KEYS, predicts=False, seed=1)
    older = (tmp_path / PLACES).read_bytes()
    released(tmp_path, ["one", "two", "three"], predicts=True, seed=2)
    (tmp_path / PLACES).write_bytes(older)
    with pytest.raises(CheckpointError, match="newer than the rows"):
        released(tmp_path, ["two"], predicts=True, seed=3)
