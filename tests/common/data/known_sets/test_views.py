"""Multi-view sets against the written values, and the real ones where COLONNADE_DATA names them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from scipy.io import savemat

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import DataError

data = TypeAdapter(DataConfig).validate_python
labels = TypeAdapter(LabelConfig).validate_python
ALONE = PartyIndex(0, 1)
FIRST, SECOND = np.arange(12, dtype=np.uint16).reshape(4, 3), np.linspace(-1, 1, 8).reshape(4, 2)


def cell(*views: np.ndarray) -> np.ndarray:
    made = np.empty((1, len(views)), object)
    for place, view in enumerate(views):
        made[0, place] = view
    return made


def write(folder: Path, **content: Any) -> Path:
    savemat(folder / "views.mat", content)
    return folder


def view(number: int, **more: Any) -> Any:
    return data({"source": "mat", "path": "views.mat", "view": number, **more})


def test_views_and_classes(tmp_path: Path) -> None:
    write(tmp_path, X=cell(FIRST, SECOND), Y=np.array([[2], [1], [1], [3]]))
    first, second = (load_features(view(number), ALONE, tmp_path) for number in (1, 2))
    assert first.values.tolist() == FIRST.tolist() and second.values.tolist() == SECOND.tolist()
    assert first.values.dtype == torch.float64 and first.names == ("view1_0", "view1_1", "view1_2")
    found = load_labels(labels({"source": "mat", "path": "views.mat"}), tmp_path)
    assert found.values.tolist() == [1, 0, 0, 2] and found.classes == ("0", "1", "2")


def test_a_view_can_be_split(tmp_path: Path) -> None:
    write(tmp_path, X=cell(FIRST, SECOND), y=np.array([1, 2, 1, 2]))
    config = view(1, split="columns")
    parts = [load_features(config, PartyIndex(member, 2), tmp_path).values for member in (0, 1)]
    assert torch.cat(parts, dim=1).tolist() == FIRST.tolist() and parts[1].tolist() == FIRST[:, 2:].tolist()


@pytest.mark.parametrize(
    ("content", "number", "fault"),
    [
        ({"X": cell(FIRST, SECOND)}, 3, "no view 3, there are 2"),
        ({"X": FIRST}, 1, "no cell array X"),
        ({"Z": FIRST}, 1, "no cell array X"),
        ({"X": cell(FIRST, np.array([[np.nan], [1]]))}, 2, "view 2 is no matrix of finite numbers"),
        ({"X": cell(np.zeros((2, 2), complex) + 1j, FIRST)}, 1, "view 1 is no matrix of finite numbers"),
    ],
)
def test_invalid_views(tmp_path: Path, content: dict[str, Any], number: int, fault: str) -> None:
    with pytest.raises(DataError, match=fault) as caught:
        load_features(view(number), ALONE, write(tmp_path, **content))
    assert "views.mat" in str(caught.value) and caught.value.hint


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"X": cell(FIRST, SECOND)}, "no vector y or Y"),
        ({"y": FIRST}, "no vector y or Y"),
        ({"y": np.array([0, 1, 2])}, "numbers its classes -1, 0, 1 instead of"),
        ({"y": np.array([1.5, 2])}, "holds 0.5, which is no class"),
    ],
)
def test_invalid_classes(tmp_path: Path, content: dict[str, Any], fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        load_labels(labels({"source": "mat", "path": "views.mat"}), write(tmp_path, **content))


def test_a_file_that_matlab_did_not_write(tmp_path: Path) -> None:
    (tmp_path / "views.mat").write_bytes(b"0123456789" * 30)
    with pytest.raises(DataError, match=r"views\.mat cannot be read"):
        load_features(view(1), ALONE, tmp_path)


@pytest.mark.papers
@pytest.mark.parametrize(
    ("path", "columns", "rows", "classes"),
    [
        ("mfeat/Handwritten.mat", [216, 76, 64, 6, 240, 47], 2000, 10),
        ("msrc-v1/MSRC-v5.mat", [24, 576, 512, 256, 254], 210, 7),
        ("scene15/Scene_15.mat", [20, 59, 40], 4485, 15),
    ],
)
def test_the_known_sets(data_root: Path, path: str, columns: list[int], rows: int, classes: int) -> None:
    found = load_labels(labels({"source": "mat", "path": path}), data_root)
    assert len(found.values) == rows and len(found.classes) == classes
    for number, width in enumerate(columns, 1):
        features = load_features(data({"source": "mat", "path": path, "view": number}), ALONE, data_root)
        assert tuple(features.values.shape) == (rows, width)


@pytest.mark.papers
@pytest.mark.parametrize(("number", "name"), [(1, "fac"), (2, "fou"), (3, "kar"), (4, "mor"), (5, "pix"), (6, "zer")])
def test_views_of_handwritten_numerals_are_uci_s_files(data_root: Path, number: int, name: str) -> None:
    if not (file := data_root / "mfeat" / f"mfeat-{name}").is_file():
        pytest.skip(f"{file} is not there")
    config = data({"source": "mat", "path": "mfeat/Handwritten.mat", "view": number})
    assert load_features(config, ALONE, data_root).values.tolist() == np.loadtxt(file).tolist()
