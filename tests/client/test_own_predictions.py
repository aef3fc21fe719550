"""A party's own predictions are kept by key."""

from __future__ import annotations

import csv
import stat
from pathlib import Path

import pytest
import torch

from colonnade.client.prediction import OwnPredictions
from colonnade.common.errors import EnvironmentFault

VALUES = torch.tensor([[0.25, 0.75], [0.5, 0.25]])


def read(path: Path) -> list[list[str]]:
    with path.open(newline="") as lines:
        return list(csv.reader(lines))


def test_lines_are_of_the_ids_of_rows_and_another_start_goes_on(tmp_path: Path) -> None:
    OwnPredictions(tmp_path / "own.csv", ["x", "y", "z"], ("no", "yes")).add(torch.tensor([2, 0]), VALUES)
    OwnPredictions(tmp_path / "own.csv", ["x", "y", "z"], ("no", "yes")).add(torch.tensor([1]), VALUES[:1])
    assert stat.S_IMODE((tmp_path / "own.csv").stat().st_mode) == 0o600
    assert read(tmp_path / "own.csv") == [
        ["id", "class", "p_no", "p_yes"], ["z", "yes", "0.25", "0.75"], ["x", "no", "0.5", "0.25"],
        ["y", "yes", "0.25", "0.75"],
    ]  # fmt: skip


def test_without_ids_rows_go_by_their_numbers(tmp_path: Path) -> None:
    OwnPredictions(tmp_path / "own.csv", None, ("no", "yes")).add(torch.tensor([7, 9]), VALUES)
    assert [line[0] for line in read(tmp_path / "own.csv")[1:]] == ["7", "9"]


def test_a_disk_that_refuses_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="nowhere"):
        OwnPredictions(tmp_path / "nowhere" / "own.csv", None, ("no", "yes")).add(torch.tensor([1, 2]), VALUES)
