"""Rows of one class, or a part without a class: refused or said, by `check` and by the run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.config.members import DecideConfig
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data.labels import TargetScale
from colonnade.common.data.rows import Partition, partition
from colonnade.common.errors import DataError
from colonnade.server.training.classes import LabelParts, few_of_common, of_common
from tests.support.household import colonnade

ROWS = 80


@given(st.lists(st.integers(0, 3), min_size=12, max_size=60), st.integers(0, 9))
def test_every_lost_class_of_every_part_is_named(labels: list[int], seed: int) -> None:
    rows = partition(len(labels), 0, RowsConfig(), seed)
    found = LabelParts(torch.tensor(labels), rows, ("a", "b", "c", "d"))
    said = [*found.warnings()]
    parts = {"training": rows.train, "validation": rows.validation, "test": rows.test}
    for part, of in parts.items():
        there = {labels[row] for row in of.tolist()}
        lines = [line for line in said if f" {part} row" in line]
        lost = {name for code, name in enumerate("abcd") if code not in there} if len(of) else set()
        assert len(lines) == bool(lost) and {name for name in "abcd" for line in lines if f"'{name}'" in line} == lost
    if len({labels[row] for row in rows.train.tolist()}) == 1:
        with pytest.raises(DataError, match="nothing to learn"):
            found.refuse_one()
    else:
        found.refuse_one()


@given(st.floats(-1e9, 1e9), st.integers(2, 50))
def test_a_constant_target_is_refused_whatever_its_rounding(number: float, rows: int) -> None:
    with pytest.raises(DataError, match="target 1 is"):
        TargetScale.fit(torch.full((rows, 1), number, dtype=torch.float64), torch.arange(rows))


def test_a_constant_target_in_a_small_part_is_said() -> None:
    values = torch.tensor([[1.0], [2.0], [3.0], [5.0], [5.0]])
    parts = Partition(torch.tensor([0, 1]), torch.tensor([3, 4]), torch.tensor([2]))
    validation, test = LabelParts(values, parts, 0).warnings()
    assert "all 2 validation rows" in validation and "the one test row" in test


def test_few_validation_rows_for_a_threshold_are_said_and_none_are_refused() -> None:
    f1, labels = DecideConfig(by="f1"), torch.tensor([1] * 40 + [0] * 160)
    rows = Partition(torch.arange(100, 200), torch.arange(20, 100), torch.arange(20))  # 20 and 60 of each class
    parts = LabelParts(labels, rows, ("no", "yes"))
    (said,) = parts.few(f1, "none")
    assert said.startswith(
        "server.decide: the validation rows have 20 of 'yes'; on fewer than 30 of a class it is chosen"
    )
    (said,) = parts.few(DecideConfig(at=0.3), "isotonic")
    assert said.startswith("server.calibrate: the validation rows have 60 of 'no' and 20 of 'yes'; on fewer than 100")
    assert not [*parts.few(None, "none"), *parts.few(DecideConfig(at=0.3), "none")]
    (said,) = few_of_common(labels, ("no", "yes"), 100, f1, "none")  # a fifth of them to be expected
    assert "have about 20 of 'yes'" in said
    assert not [*few_of_common(labels, ("no", "yes"), 190, f1, "none")]
    assert not [*few_of_common(labels, ("no", "yes"), 10, None, "none")]
    alone = LabelParts(labels, Partition(rows.train, torch.arange(50, 60), rows.test), ("no", "yes"))
    with pytest.raises(DataError, match=r"server\.decide: none of the validation rows \(10\) is of the class 'yes'"):
        [*alone.few(f1, "platt")]


def test_rare_classes_of_common_rows_are_said_before_their_partition_is_known() -> None:
    labels = torch.tensor([0] * 77 + [1] * 3)
    (few,) = [line for line in of_common(labels, ("no", "yes"), (58, 6, 16)) if "validation" in line]
    assert "3 of 'yes'" in few
    assert not [*of_common(torch.arange(80) % 2, ("no", "yes"), (58, 6, 16))]


def write(folder: Path, label: dict[str, object], known: set[str], **federation: object) -> Path:
    """Labels by key, and one party with a column for the known keys."""
    draw = random.Random(1)
    (folder / "labels.csv").write_text("id,y\n" + "".join(f"{key},{value}\n" for key, value in label.items()))
    (folder / "bank.csv").write_text("id,x\n" + "".join(f"{key},{draw.random():.6f}\n" for key in sorted(known)))
    more = "".join(f", {key}: {value}" for key, value in federation.items())
    (folder / "f.yaml").write_text(f"""
federation: {{id: t, protocol: {{name: split, embedding: 2}}, batch: 8, epochs: 1, parties: [bank]{more}}}
server: {{labels: {{source: csv, path: labels.csv, key: id, label: y}}}}
parties: {{bank: {{data: {{source: csv, path: bank.csv, key: id}}}}}}
""")
    return folder / "f.yaml"


KEYS = [f"k{row:03}" for row in range(2 * ROWS)]
CASES = {
    "one class among the common rows": ({"classes": 2, "align": "psi"}, lambda row: int(row >= ROWS)),
    "one of three among the common rows": (
        {"classes": 3, "align": "psi"},
        lambda row: row % 2 + 1 if row >= ROWS else 0,
    ),
    "a constant among the common rows": (
        {"task": "regression", "targets": 1, "align": "psi"},
        lambda row: max(row, ROWS),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_check_and_the_run_refuse_what_cannot_be_learned(tmp_path: Path, case: str) -> None:
    federation, label = CASES[case]
    file = write(tmp_path, {key: label(row) for row, key in enumerate(KEYS)}, {*KEYS[:ROWS]}, **federation)
    for command in (
        ["check", file],
        ["simulate", file, "--out", tmp_path / "run"],
        ["up", file, "--out", tmp_path / "up"],
    ):
        code, output = colonnade(*command)
        assert code == 2 or (command[0] == "up" and code), output
        assert "nothing to learn" in output, output


def test_a_training_part_of_one_class_is_refused_where_rows_are_matched_by_order(tmp_path: Path) -> None:
    rows = partition(ROWS, 0, RowsConfig(), 0)
    label = dict.fromkeys(KEYS[:ROWS], 0) | {KEYS[row]: 1 for row in rows.test.tolist()}
    file = write(tmp_path, label, {*KEYS[:ROWS]}, classes=2)
    for command in (["check", file], ["simulate", file, "--out", tmp_path / "run"]):
        code, output = colonnade(*command)
        assert code == 2 and f"all {len(rows.train)} training rows are of the class '0'" in " ".join(output.split())


def test_a_lost_class_of_several_is_a_warning_of_both(tmp_path: Path) -> None:
    label = {key: row % 2 if row < ROWS else 2 for row, key in enumerate(KEYS)}
    file = write(tmp_path, label, {*KEYS[:ROWS]}, classes=3, align="psi")
    code, output = colonnade("check", file)
    assert code == 0 and "no common row is of the class '2'" in output, output
    code, output = colonnade("simulate", file, "--out", tmp_path / "run")
    assert code == 0 and "training rows have none of the class '2'" in " ".join(output.split()), output
    assert "training rows have none of the class '2'" in (tmp_path / "run" / "events.jsonl").read_text()
