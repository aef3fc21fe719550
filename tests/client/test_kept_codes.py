"""Codes that are drawn once: over calls, restarts, changed encoders, full disks and altered files."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch

from colonnade.client.privacy.codes import KeptCodes
from colonnade.common.errors import CheckpointError, EnvironmentFault, InputError
from colonnade.common.privacy.subsets import SubsetSelection
from colonnade.common.run import run_cache

NOISE = SubsetSelection(10, 1, 1.0)  # nearly every second draw of a row would differ
ROWS, CODES = torch.arange(500), torch.arange(500) % 10


def kept(
    folder: Path, noise: SubsetSelection = NOISE, rows: int = 500, *, begun: bool = False, seed: int = 1
) -> KeptCodes:
    return KeptCodes(folder / "codes", noise, rows, begun=begun, bits=random.Random(seed).randbytes)


def test_a_row_has_one_draw_in_every_order_over_restarts_and_when_its_code_changes(tmp_path: Path) -> None:
    first = kept(tmp_path)
    some = first.release(ROWS[:300], CODES[:300])
    again = first.release(ROWS.flip(0), (CODES.flip(0) + 5) % 10).flip(0)
    later = kept(tmp_path, begun=True, seed=2).release(ROWS, (CODES + 1) % 10)
    assert torch.equal(some, again[:300]) and torch.equal(again, later)
    assert not torch.equal(later, NOISE.draw(CODES, random.Random(3).randbytes))  # else nothing could differ


@pytest.mark.parametrize(("classes", "size"), [(2, 1), (8, 3), (9, 1), (20, 2)])
def test_what_is_released_is_the_mechanisms_draw(tmp_path: Path, classes: int, size: int) -> None:
    noise = SubsetSelection(classes, size, 2.0)
    codes = torch.arange(500) % classes
    released = kept(tmp_path, noise).release(ROWS, codes)
    assert torch.equal(released, noise.draw(codes, random.Random(1).randbytes))
    assert released.sum(1).eq(size).all()
    right = released[ROWS, codes].mean().item()
    assert right == pytest.approx(noise.kept, abs=4 * math.sqrt(0.25 / 500))


def test_draws_are_on_the_disk_before_they_are_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = kept(tmp_path)

    def full(path: Path, *_: object, **_more: object) -> None:
        raise EnvironmentFault(f"{path} cannot be written")

    with monkeypatch.context() as broken:
        broken.setattr(run_cache, "write_kept", full)
        with pytest.raises(EnvironmentFault):
            codes.release(ROWS, CODES)
    assert not codes.drawn.any() and not (tmp_path / "codes").exists()
    released = codes.release(ROWS[:7], CODES[:7])
    assert codes.drawn.sum() == 7
    assert torch.equal(kept(tmp_path, begun=True, seed=9).release(ROWS[:7], CODES[:7]), released)


def test_a_lost_or_altered_file_is_no_reason_to_draw_again(tmp_path: Path) -> None:
    kept(tmp_path).release(ROWS, CODES)
    path = tmp_path / "codes"
    content = path.read_bytes()
    for broken in (content[:-1], content[:-1] + bytes([content[-1] ^ 1]), b"", content.replace(b"[500,", b"[501,")):
        path.write_bytes(broken)
        with pytest.raises(CheckpointError, match="torn or was altered"):
            kept(tmp_path, begun=True)
    path.unlink()
    with pytest.raises(CheckpointError, match="missing"):
        kept(tmp_path, begun=True)


@pytest.mark.parametrize(
    ("noise", "rows"),
    [
        (SubsetSelection(10, 1, 1.1), 500),
        (SubsetSelection(10, 2, 1.0), 500),
        (SubsetSelection(9, 1, 1.0), 500),
        (NOISE, 499),
    ],
)
def test_other_settings_are_refused_and_write_nothing(tmp_path: Path, noise: SubsetSelection, rows: int) -> None:
    kept(tmp_path).release(ROWS, CODES)
    before = (tmp_path / "codes").read_bytes()
    with pytest.raises(CheckpointError, match="other settings"):
        kept(tmp_path, noise, rows, begun=True)
    assert (tmp_path / "codes").read_bytes() == before


@pytest.mark.parametrize(
    ("rows", "codes"),
    [([500], [0]), ([-1], [0]), ([1, 1], [0, 0]), ([1], [10]), ([1], [-1]), ([1, 2], [0]), ([1.0], [0])],
)
def test_wrong_rows_and_codes_are_refused_and_write_nothing(tmp_path: Path, rows: list[int], codes: list[int]) -> None:
    with pytest.raises(InputError):
        kept(tmp_path).release(torch.tensor(rows), torch.tensor(codes))
    assert not (tmp_path / "codes").exists()
