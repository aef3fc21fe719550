"""`check` says where no default can be good, and where to begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from colonnade.cli.checks.check import check
from colonnade.cli.checks.columns import hints_of_party
from colonnade.common.config.models import CnnConfig, MlpConfig
from colonnade.common.data.columns.scale import Columns, Scaler
from tests.support.federation import tree

ROWS = torch.arange(1000)


def columns(values: torch.Tensor) -> Columns:
    spread, shift = values.std(0), values.mean(0)
    return Columns(values.double(), Scaler(shift.double(), torch.where(spread > 0, spread, 1.0).double()))


def said(values: torch.Tensor, model: Any = None) -> str:
    return " ".join(hints_of_party(columns(values), ROWS, model or MlpConfig()))


def test_columns_with_long_tails_are_counted() -> None:
    draws = torch.Generator().manual_seed(0)
    plain = torch.randn(1000, 3, generator=draws)
    assert said(plain) == ""
    tails = plain.clone()
    tails[5, 1] = 1000.0
    assert "1 of 3 columns reach beyond 20 deviations" in said(tails) and "logarithms" in said(tails)


def test_rare_words_and_columns_of_few_values_have_no_tail() -> None:
    rare = torch.zeros(1000, 2)
    rare[0, 0], rare[:2, 1] = 1.0, torch.tensor([3.0, 7.0])  # a word that one row has; a pixel that is nearly always 0
    assert columns(rare)[ROWS].abs().max() > 20
    assert said(rare) == ""


def test_images_in_colour_want_another_model() -> None:
    images = torch.rand(1000, 3, 4, 4)
    assert "model: cnn" in said(images)
    assert said(images, CnnConfig()) == said(torch.rand(1000, 4, 4)) == ""


@pytest.mark.parametrize(
    ("name", "rounds", "words"),
    [
        ("split", 200, ()), ("split", 20, ("hint: only 20 rounds;",)), ("linear_admm", 20, ()),
        ("zoo_vfl", 200, ("hint: zoo_vfl learns from one number a batch",)),
    ],
)  # fmt: skip
def test_the_protocol_and_the_length(
    name: str, rounds: int, words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "federation.yaml"
    path.write_text(yaml.safe_dump(tree({"name": name}, rounds=rounds, epochs=0)))
    check(path, ())
    printed = capsys.readouterr().out
    assert [word for word in words if word not in printed] == []
    assert printed.count("hint: ") == len(words)
