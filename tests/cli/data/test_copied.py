"""`check` warns of a column that says the label outright, where it reads both."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from colonnade.cli.checks.columns import copies
from colonnade.common.config.alignment import KeysConfig
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data.columns.features import Features
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import partition
from tests.support.household import colonnade

ROWS = 60
LABEL = torch.arange(ROWS) % 2


def warned(values: torch.Tensor, label: LabelColumn, ids: tuple[str, ...] | None = None) -> list[str]:
    names = tuple(f"c{place}" for place in range(values.shape[1]))
    return [*copies(label, Features(values.double(), names, 0, ids), KeysConfig())]


def test_a_copy_under_other_words_is_named_and_a_good_column_is_not() -> None:
    copy, good = 7 - 3 * LABEL, LABEL.clone()
    good[:4] = 1 - good[:4]  # wrong in four rows alone
    (said,) = warned(torch.stack([copy, good], 1), LabelColumn(LABEL, ("no", "yes")))
    assert "'c0' says the label of every row" in said and "drop: [c0]" in said


MANY = 900
CLASS = (torch.arange(MANY) * 7 % 10 < 3).long()
DRAWS = torch.Generator().manual_seed(3)
NOISE = torch.rand(MANY, generator=DRAWS).double()
GAP = torch.full((MANY,), torch.nan).double()
BOTH = LabelColumn(CLASS, ("no", "yes"))


def spoilt(column: torch.Tensor, rows: int) -> torch.Tensor:
    """The column with some rows of either class exchanged."""
    column = column.clone()
    for one in (0, 1):
        places = (one == CLASS).nonzero().squeeze(1)[:rows]
        column[places] = column[(one != CLASS).nonzero().squeeze(1)[: len(places)]]
    return column


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize(
    ("column", "said"),
    [
        (torch.where(CLASS == 1, GAP, NOISE), "missing where the label is of one class"),
        (torch.where(CLASS == 0, GAP, NOISE), "missing where the label is of one class"),
        (torch.where(CLASS == 1, GAP, torch.zeros(MANY).double()), "missing where the label is of one class"),
        (torch.where(CLASS == 1, 10 + NOISE, 0.0), "threshold"),
        (torch.where(CLASS == 1, -NOISE, NOISE * 50), "threshold"),
        (CLASS * 10 + torch.arange(MANY) % 4, "has rows of one class"),
        ((CLASS + 1) % 2 * 3 + torch.arange(MANY) % 3 * 10, "has rows of one class"),
    ],
)
def test_a_column_whose_gaps_threshold_or_words_say_the_class_is_named(
    column: torch.Tensor, said: str, wrong: int
) -> None:
    (found,) = warned(spoilt(column.double(), wrong)[:, None], BOTH)
    assert said in found and "drop: [c0]" in found
    assert not warned(spoilt(column.double(), 40)[:, None], BOTH)


def test_columns_that_say_much_of_the_class_are_not_named() -> None:
    missing_often = torch.where((CLASS == 1) & (NOISE < 0.8), GAP, NOISE)
    strong = NOISE + CLASS * 0.8  # a threshold has 4 of 5 rows of a class
    ids = torch.arange(MANY)
    words = torch.arange(MANY) % 11
    assert not warned(torch.stack([missing_often, strong, ids, words, NOISE], 1), BOTH)
    three = LabelColumn(torch.arange(MANY) % 3, ("a", "b", "c"))
    parted = (torch.arange(MANY) % 3 == 0) * 5 + NOISE  # one of three classes alone, as one kind of flower
    assert not warned(parted[:, None], three)
    gaps = torch.where(torch.arange(MANY) % 3 == 0, GAP, NOISE)
    assert warned(gaps[:, None], three)


def test_columns_that_say_a_number_are_named() -> None:
    target = LabelColumn(torch.stack([NOISE, NOISE.flip(0)], 1), ())
    gaps = torch.where(NOISE > 0.8, GAP, NOISE.flip(0) ** 2 + torch.rand(MANY, generator=DRAWS).double())
    monotone, near = torch.exp(-5 * NOISE.flip(0)), NOISE + 0.3 * torch.rand(MANY, generator=DRAWS).double()
    found = warned(torch.stack([gaps, monotone, near], 1), target)
    assert ["missing where" in found[0], "rise, or fall" in found[1], len(found)] == [True, True, 2]


def test_rows_are_matched_by_their_keys() -> None:
    ids = tuple(f"k{row}" for row in range(ROWS))
    labels, order = LabelColumn(LABEL, ("0", "1"), ids=ids), torch.randperm(ROWS)
    shuffled = tuple(ids[row] for row in order.tolist())
    assert warned(LABEL[order][:, None], labels, shuffled) and not warned(LABEL[order][:, None], labels, ids)


def test_a_copy_is_found_behind_many_rows_of_one_class_and_a_late_difference_is_seen() -> None:
    label = torch.arange(3000) // 1500
    late = label.clone()
    late[-1] = 0
    said, nearly = warned(torch.stack([1 - label, late, torch.zeros(3000)], 1), LabelColumn(label, ("no", "yes")))
    assert "'c0' says the label of every row" in said and "'c1' gives the label away" in nearly
    assert not warned(torch.zeros(3000, 1), LabelColumn(torch.zeros(3000, dtype=torch.int64), ("no", "yes")))


def test_numbers_to_be_predicted_are_compared_as_they_are() -> None:
    target = torch.arange(ROWS).double()[:, None]
    assert "of every row" in warned(target, LabelColumn(target, ()))[0]
    assert "rise, or fall" in warned(target + 1, LabelColumn(target, ()))[0]


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
