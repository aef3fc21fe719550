from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError
from sklearn import datasets

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.config.run_options import RowsConfig
from colonnade.common.data.known_sets import catalogue
from colonnade.common.data.known_sets.bundled import Bundled
from colonnade.common.data.rows import partition
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ConfigError, DataError, EnvironmentFault

data = TypeAdapter(DataConfig).validate_python
labels = TypeAdapter(LabelConfig).validate_python
ALONE = PartyIndex(0, 1)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setattr(catalogue, "cache", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "wine", "iris"])
def test_bundled_sets_are_those_of_scikit_learn(name: str) -> None:
    theirs = getattr(datasets, f"load_{name}")()
    features = load_features(data({"source": "sklearn", "name": name, "split": "all"}), ALONE, Path())
    ours = load_labels(labels({"source": "sklearn", "name": name}), Path())
    assert features.values.flatten(1).tolist() == theirs.data.tolist()
    assert features.names == tuple(theirs.feature_names)
    assert ours.values.tolist() == theirs.target.tolist()
    assert ours.classes == tuple(str(word) for word in theirs.target_names)


def test_parties_of_digits_hold_the_whole_image_between_them() -> None:
    config = data({"source": "sklearn", "name": "digits", "split": "image_rows"})
    parts = [load_features(config, PartyIndex(index, 3), Path()).values for index in range(3)]
    assert [part.shape for part in parts] == [(1797, 3, 8), (1797, 3, 8), (1797, 2, 8)]
    whole = load_features(config, ALONE, Path()).values
    assert torch.equal(torch.cat(parts, dim=1), whole) and whole.max() == 16


def test_a_scikit_learn_without_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.common.data.known_sets.bundled._folder", lambda: tmp_path)
    with pytest.raises(EnvironmentFault, match=r"scikit-learn has no iris\.csv"):
        Bundled("iris")


def test_an_idx_folder(idx_folder: Path, images: np.ndarray) -> None:
    config = data({"source": "idx", "folder": "tiny"})
    features = load_features(config, PartyIndex(1, 4), idx_folder.parent)
    assert features.values.tolist() == images[:, 1:2].tolist()
    assert features.official_test == 3
    assert features.names == ("pixel_1_0", "pixel_1_1", "pixel_1_2")
    found = load_labels(labels({"source": "idx", "folder": "tiny"}), idx_folder.parent)
    assert found.classes == ("0", "1") and found.official_test == 3


def test_places_are_tried_in_order(
    idx_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    config, here = data({"source": "idx", "folder": "tiny"}), idx_folder.parent
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    load_features(config, ALONE, here)
    monkeypatch.setenv("COLONNADE_DATA", str(here))
    load_features(config, ALONE, elsewhere)
    load_features(data({"source": "idx", "folder": str(idx_folder)}), ALONE, elsewhere)
    monkeypatch.delenv("COLONNADE_DATA")
    with pytest.raises(DataError):
        load_features(config, ALONE, elsewhere)
    idx_folder.rename(cache.parent / "moved")
    cache.mkdir()
    (cache.parent / "moved").rename(cache / "tiny")
    load_features(config, ALONE, elsewhere)


def test_a_folder_without_the_files_is_passed_over(
    idx_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "base" / "tiny").mkdir(parents=True)
    monkeypatch.setenv("COLONNADE_DATA", str(idx_folder.parent))
    assert len(load_features(data({"source": "idx", "folder": "tiny"}), ALONE, tmp_path / "base").values) == 8


def test_a_missing_set_names_the_searched_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("COLONNADE_DATA", "/some/where")
    with pytest.raises(DataError) as caught:
        load_features(data({"source": "idx", "folder": "mnist"}), ALONE, tmp_path)
    places_ = f"{tmp_path / 'mnist'} or /some/where/mnist or {cache / 'mnist'}"
    assert str(caught.value) == f"no images in idx format at {places_}"
    assert "`colonnade datasets fetch mnist`" in caught.value.hint
    assert "COLONNADE_DATA" in caught.value.hint


def test_the_cache_is_the_user_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert catalogue.cache().name == "colonnade"


def test_an_absolute_path_is_looked_for_nowhere_else(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"^no file at {tmp_path}/gone.csv$"):
        load_labels(labels({"source": "csv", "path": f"{tmp_path}/gone.csv", "label": "y"}), tmp_path)


def test_a_missing_file_gives_a_hint(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"no file at {tmp_path / 'gone.csv'} or") as caught:
        load_labels(labels({"source": "csv", "path": "gone.csv", "label": "y"}), tmp_path)
    assert "correct the path" in caught.value.hint


@pytest.fixture
def clients(tmp_path: Path) -> Path:
    (tmp_path / "clients.csv").write_text("who,age,income,outcome\nann,30,5,yes\nbob,40,7,no\n")
    return tmp_path


def test_a_csv_file(clients: Path) -> None:
    config = data({"source": "csv", "path": "clients.csv", "id": "who", "drop": ["outcome"]})
    features = load_features(config, PartyIndex(1, 2), clients)
    assert features.values.tolist() == [[30, 5], [40, 7]]
    assert features.names == ("age", "income") and features.ids == ("ann", "bob")
    outcome = {"source": "csv", "path": "clients.csv", "id": "who", "label": "outcome"}
    found = load_labels(labels(outcome), clients)
    assert found.values.tolist() == [1, 0] and found.ids == ("ann", "bob")


def test_columns_of_a_csv_file_by_name(clients: Path) -> None:
    split = {"kind": "columns", "take": ["income"]}
    features = load_features(data({"source": "csv", "path": "clients.csv", "split": split}), ALONE, clients)
    assert features.values.tolist() == [[5], [7]] and features.names == ("income",)
    with pytest.raises(ConfigError, match="no column 'wage'"):
        split = {"kind": "columns", "take": ["wage"]}
        load_features(data({"source": "csv", "path": "clients.csv", "split": split}), ALONE, clients)


@pytest.mark.parametrize("key", ["id", "label"])
def test_an_unknown_column_of_a_csv_file(clients: Path, key: str) -> None:
    config = {"source": "csv", "path": "clients.csv", "label": "outcome", key: "whom"}
    with pytest.raises(DataError, match=r"no column 'whom' \(did you mean 'who'\?\)"):
        load_labels(labels(config), clients)


def test_a_fingerprint_changes_with_the_data(clients: Path) -> None:
    def fingerprint() -> str:
        return load_features(
            data({"source": "csv", "path": "clients.csv", "drop": ["who", "outcome"]}), ALONE, clients
        ).fingerprint

    first, second = fingerprint(), fingerprint()
    (clients / "clients.csv").write_text("who,age,income,outcome\nann,30,5,yes\nbob,41,7,no\n")
    assert first == second != fingerprint()
    assert len(first) == 16


@pytest.mark.parametrize(
    "value",
    [
        {"source": "sklearn", "name": "digit"},
        {"source": "excel", "path": "x"},
        {"source": "idx", "folder": "mnist", "label": "y"},
        {"source": "csv", "path": "x", "delimiter": ",,"},
        {"source": "csv", "path": "x", "spilt": "all"},
        {"name": "digits"},
    ],
)
def test_the_configuration_refuses(value: object) -> None:
    with pytest.raises(ValidationError):
        data(value)


@pytest.mark.parametrize(
    "value",
    [
        {"source": "sklearn", "name": "digits", "split": {"kind": "patches", "grid": [2, 2]}},
        {"source": "idx", "folder": "mnist", "scale": {"mean": 0.1307, "std": 0.3081}},
        {"source": "csv", "path": "x", "split": {"kind": "columns", "take": ["a"]}},
    ],
)
def test_a_written_configuration_reads_back_equal(value: object) -> None:
    config = data(value)
    assert data(TypeAdapter(DataConfig).dump_python(config, mode="json")) == config


def test_labels_have_no_split() -> None:
    with pytest.raises(ValidationError, match="split"):
        labels({"source": "idx", "folder": "mnist", "split": "image_rows"})


@pytest.mark.papers
def test_mnist_as_the_papers_deal_it(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(data_root))
    found = load_labels(labels({"source": "idx", "folder": "mnist"}), Path())
    parts = partition(len(found.values), found.official_test, RowsConfig(), seed=0)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == (54_000, 6_000, 10_000)
    assert found.classes == tuple("0123456789")


@pytest.mark.papers
def test_fashion_mnist_has_names(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(data_root))
    found = load_labels(labels({"source": "idx", "folder": "fashion-mnist"}), Path())
    assert found.classes[9] == "Ankle boot" and found.values[0] == 9


@pytest.mark.papers
def test_credit_default(data_root: Path) -> None:
    config = {"source": "csv", "path": "credit-default/UCI_Credit_Card.csv", "split": "columns"}
    config["drop"] = ["ID", "default.payment.next.month"]
    parts = [load_features(data(config), PartyIndex(index, 11), data_root).values for index in range(11)]
    assert [part.shape[1] for part in parts] == [3] + [2] * 10
    assert parts[0][:, 0].mean().item() == pytest.approx(167484.32, abs=0.01)
