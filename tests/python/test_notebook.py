"""examples/notebook/credit.ipynb, run from top to bottom: its numbers say what its text says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "examples" / "notebook" / "credit.ipynb"
ASKED = "import json; print(json.dumps([result.to_dict(), run.metrics, only_bank.metrics, len(common)]))"


def test_it_is_kept_without_outputs() -> None:
    cells = nbformat.read(BOOK, 4).cells
    assert len(cells) > 10 and not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_it_runs_and_its_text_holds(tmp_path: Path) -> None:
    book = nbformat.read(BOOK, 4)
    book.cells.append(new_code_cell(ASKED))
    NotebookClient(book, timeout=240, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()
    result, joint, alone, common = json.loads(_printed(book.cells[-1]))
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


def _printed(cell: Any) -> str:
    return "".join(output["text"] for output in cell["outputs"] if output.get("name") == "stdout")
