"""examples/notebook/credit.ipynb, run from top to bottom: its numbers say what its text says."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from colonnade.common.crypto import raising
from colonnade.common.crypto.group import Secret
from colonnade_lab.attacks import network
from tests.support.alignment import hash_cheaply, raise_cheaply

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "examples" / "notebook" / "credit.ipynb"


def test_it_is_kept_without_outputs() -> None:
    cells = json.loads(BOOK.read_text(encoding="utf-8"))["cells"]
    assert len(cells) > 10 and not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_it_runs_and_its_text_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, within a running event loop, as cells are. Keys are not raised to secrets: that takes long.

    The networks of inversions are smaller and train less.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(network, "EPOCHS", 30)
    monkeypatch.setattr(network, "HIDDEN", 64)
    monkeypatch.setattr(raising, "hash_to_curve", hash_cheaply)
    monkeypatch.setattr(Secret, "raise_all", raise_cheaply)
    monkeypatch.setattr(Secret, "inverse", lambda own: own)
    names: dict[str, Any] = {"__name__": "__main__"}

    async def cells() -> None:
        for cell in json.loads(BOOK.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                exec(compile("".join(cell["source"]), BOOK.name, "exec"), names)

    with patch.dict(os.environ):
        asyncio.run(cells())
    result, common = names["result"].to_dict(), len(names["common"])
    joint, alone = names["run"].metrics, names["only_bank"].metrics
    runs = list(result["test AUC"])
    assert runs == ["no protection", "labels, epsilon 2", "labels, epsilon 1"]
    assert 2000 < common < 2700 and joint["test_auc"] > alone["test_auc"] + 0.01
    found, chance = (result[name] for name in ("labels found", "labels found by chance"))
    assert found[runs[0]] > 0.95 and chance[runs[0]] < 0.75
    assert found[runs[2]] < chance[runs[2]] + 0.05  # as many as without any message
    assert [result["epsilon of a label"][name] for name in runs] == [float("inf"), 2, 1]
    auc = [result["test AUC"][name] for name in runs]
    assert auc[0] > auc[2] > 0.7
    assert all(0 < error < 0.5 for error in result["inversion error"].values())  # columns are not protected
    assert (tmp_path / "runs").is_dir()
