"""`check` warns of a column that says the label outright, where it reads both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.cli.checks.copied import copies
from colonnade.common.config.keys import KeysConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import RowsConfig, partition
from tests.support.household import colonnade

ROWS = 60
LABEL = torch.arange(ROWS) % 2


def warned(values: torch.Tensor, label: LabelColumn, ids: tuple[str, ...] | None = None) -> list[str]:
    names = tuple(f"c{place}" for place in range(values.shape[1]))
    return [*copies(label, Features(values.double(), names, 0, ids), KeysConfig())]


def test_a_copy_under_other_words_is_named_and_a_good_column_is_not() -> None:
    copy, good = 7 - 3 * LABEL, LABEL.clone()
    good[0] = 1 - good[0]  # wrong in one row alone
    finer = LABEL * 10 + torch.arange(ROWS) % 4  # says the label too, with more values: it may be measured
    (said,) = warned(torch.stack([copy, good, finer], 1), LabelColumn(LABEL, ("no", "yes")))
    assert "'c0' says the label of every row" in said and "drop: [c0]" in said


def test_rows_are_matched_by_their_keys() -> None:
    ids = tuple(f"k{row}" for row in range(ROWS))
    labels, order = LabelColumn(LABEL, ("0", "1"), ids=ids), torch.randperm(ROWS)
    shuffled = tuple(ids[row] for row in order.tolist())
    assert warned(LABEL[order][:, None], labels, shuffled) and not warned(LABEL[order][:, None], labels, ids)


def test_a_copy_is_found_behind_many_rows_of_one_class_and_a_late_difference_is_seen() -> None:
    label = torch.arange(3000) // 1500
    late = label.clone()
    late[-1] = 0
    (said,) = warned(torch.stack([1 - label, late, torch.zeros(3000)], 1), LabelColumn(label, ("no", "yes")))
    assert "'c0'" in said
    assert not warned(torch.zeros(3000, 1), LabelColumn(torch.zeros(3000, dtype=torch.int64), ("no", "yes")))


def test_numbers_to_be_predicted_are_compared_as_they_are() -> None:
    target = torch.arange(ROWS).double()[:, None]
    assert warned(target, LabelColumn(target, ())) and not warned(target + 1, LabelColumn(target, ()))


@pytest.mark.parametrize("align", ["none", "psi"])
def test_check_says_it_and_sees_few_far_cells(tmp_path: Path, align: str) -> None:
    """A cell that is far out in a validation row: without alignment no training meets it, else any row may be one."""
    rows = partition(400, 0, RowsConfig(), 0)
    far = int(rows.validation[0])
    lines = [(f"k{row}", row % 2, (row * 37 % 101) / 10 if row != far else 1e6) for row in range(400)]
    for name, place in (("labels", 1), ("copied", 1), ("far", 2)):
        text = "\n".join(f"{line[0]},{line[place]}" for line in lines)
        (tmp_path / f"{name}.csv").write_text(f"id,value\n{text}\n")
    (tmp_path / "f.yaml").write_text(f"""
federation: {{id: t, protocol: split, classes: 2, align: {align}, batch: 32, epochs: 20, parties: [copied, far]}}
server: {{labels: {{source: csv, path: labels.csv, key: id, label: value}}}}
parties:
  copied: {{data: {{source: csv, path: copied.csv, key: id}}}}
  far: {{data: {{source: csv, path: far.csv, key: id}}}}
""")
    code, output = colonnade("check", tmp_path / "f.yaml")
    assert code == 0, output
    assert "copied: the column 'value' says the label of every row" in output
    assert "far: the column" not in output
    assert ("far: hint: 1 of 1 columns reach beyond 20 deviations" in output) == (align == "psi")
