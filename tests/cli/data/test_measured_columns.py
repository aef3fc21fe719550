"""The kept table: what was required of it, and which of its cells is quoted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from colonnade.cli.checks.privacy import PLACE, hidden_layers, nearest, quoted

pytestmark = pytest.mark.slow

CELLS = json.loads(PLACE.read_text())["cells"]
PAGE = Path(__file__).parents[3] / "docs" / "results" / "attacks.md"


def test_the_table_is_whole() -> None:
    assert len({(cell["layers"], cell["nominal"], cell["of"], cell["rounds"]) for cell in CELLS}) == len(CELLS) == 54


@pytest.mark.parametrize("attacker", ["starts", "known-start"])
def test_secret_starts_gave_nothing_to_attackers_who_found_rows_with_public_ones(attacker: str) -> None:
    for cell in CELLS:
        found, public = cell["secret"][attacker], cell["public"][attacker]
        assert found["score"]["mean"] < 0.05 and found["score"]["exact"] == 0
        if cell["nominal"] == 4 and cell["layers"] < 2:
            assert public["score"]["exact"] > 0.9


def test_the_nearest_cell_has_the_layers_and_the_ratio_nearest_by_factor() -> None:
    assert nearest(1, 1e-3, blinded=True)["nominal"] == 0.25 and nearest(1, 1e3, blinded=True)["nominal"] == 4
    assert nearest(7, 0.9, blinded=False)["layers"] == 2 and nearest(7, 0.9, blinded=False)["nominal"] == 1
    assert hidden_layers(nn.Linear(2, 2)) == 0 and hidden_layers(torch.nn.Sequential(*[nn.Linear(2, 2)] * 3)) == 0
    assert hidden_layers(nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Linear(2, 2))) == 1
    assert "blinded sums of three parties, one hidden layer" in quoted(1, 4, blinded=True)


def test_the_page_has_the_cells() -> None:
    page = PAGE.read_text()
    for cell in CELLS:
        assert f"| {cell['layers']} | {cell['ratio']:.2g} | {cell['of']} | {cell['rounds']} |" in page
