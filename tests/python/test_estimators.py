"""Estimators: what scikit-learn's own tools expect of them, and wrong input."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import (
    check_do_not_raise_errors_in_init_or_set_params,
    check_estimator_repr,
    check_estimator_sparse_matrix,
    check_estimators_empty_data_messages,
    check_fit2d_1sample,
    check_get_params_invariance,
    check_mixin_order,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

import colonnade
from colonnade import ColonnadeClassifier, ColonnadeRegressor
from tests.python.tables import make_tables

SHORT = {"federation": {"epochs": 3}}
DRAWS = np.random.default_rng(0)
MATRIX = DRAWS.normal(size=(240, 4))
SUM = MATRIX.sum(axis=1)
LATE = np.where(SUM > 0, "yes", "no")


def frame() -> pd.DataFrame:
    """As MATRIX, with a column of words."""
    found = pd.DataFrame(MATRIX, columns=["income", "debt", "visits", "weight"])
    return found.assign(town=np.where(SUM > 0.5, "rich", "poor"))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> ColonnadeClassifier:
    cut = {"bank": ["debt", "income", "town"], "clinic": ["visits", "weight"]}
    return ColonnadeClassifier(parties=cut, out=tmp_path_factory.mktemp("runs"), config=SHORT).fit(frame(), LATE)


@pytest.mark.parametrize("kind", [ColonnadeClassifier, ColonnadeRegressor])
@pytest.mark.parametrize(
    "check",
    [
        check_do_not_raise_errors_in_init_or_set_params, check_estimator_repr, check_get_params_invariance,
        check_mixin_order, check_no_attributes_set_in_init, check_parameters_default_constructible, check_set_params,
        check_estimator_sparse_matrix, check_estimators_empty_data_messages, check_fit2d_1sample,
    ],
)  # fmt: skip
def test_it_is_an_estimator(kind: type, check: Any) -> None:
    check(kind.__name__, kind())


@pytest.mark.slow
def test_a_data_frame_is_cut_by_name(fitted: ColonnadeClassifier) -> None:
    assert fitted.run_.parties == ("bank", "clinic")
    assert fitted.classes_.tolist() == ["no", "yes"] and fitted.score(frame(), LATE) > 0.9
    shares, found = fitted.predict_proba(frame().iloc[:30]), fitted.predict(frame().iloc[:30])
    assert np.allclose(shares.sum(axis=1), 1)
    assert (fitted.classes_[shares.argmax(axis=1)] == found).all()
    by_customer = frame().iloc[:30].set_index(pd.Index(range(7, 37), name="customer"))  # an index is no feature
    for rows in (by_customer, pa.table(by_customer)):
        assert (fitted.predict(rows) == found).all()
    with pytest.raises(ValueError, match="Reshape your data"):
        fitted.predict(MATRIX[0])
    for wrong in (make_tables(), {"server": LATE}):
        with pytest.raises(colonnade.DataError, match="X is a dict"):
            fitted.score(wrong, LATE)
    gap = frame().assign(town=[None if row == 7 else "rich" for row in range(240)])
    with pytest.raises(colonnade.ColonnadeError, match=r"^bank failed: tables\['bank'\], row 7 \(counted from 0\)"):
        fitted.predict(gap)
    with pytest.raises(ValueError, match="feature names should match"):
        fitted.predict(frame().rename(columns={"debt": "debts"}))
    with pytest.warns(UserWarning, match="valid feature names"):  # columns without names count by their places
        assert (fitted.predict(frame().iloc[:30].set_axis(range(5), axis=1)) == found).all()


@pytest.mark.slow
def test_clones_train_anew_and_pickles_predict(fitted: ColonnadeClassifier) -> None:
    again = clone(fitted)
    with pytest.raises(NotFittedError):
        again.predict(frame())
    kept = pickle.loads(pickle.dumps(fitted))
    assert (kept.predict(frame().iloc[:9]) == fitted.predict(frame().iloc[:9])).all()
    again.fit(frame(), LATE)
    assert again.run_.folder != fitted.run_.folder
    assert again.run_.metrics == fitted.run_.metrics  # the same seed


@pytest.mark.slow
def test_tables_are_aligned_and_ids_are_predicted(tmp_path: Path) -> None:
    tables = make_tables()
    model = ColonnadeClassifier(label="late", out=tmp_path, config=SHORT).fit(tables)
    common = set(tables["bank"]["id"]) & set(tables["clinic"]["id"])
    known = sorted(common)[:20]
    assert model.predict(known).shape == (20,) and set(model.classes_) == {0, 1}
    strange = sorted(set(tables["bank"]["id"]) - common)[0]
    for ask in (model.predict, model.predict_proba, lambda tables: model.score(tables, tables["server"]["late"])):
        with pytest.raises(colonnade.DataError, match="ids is a dict, several tables"):
            ask(tables)
    with pytest.raises(colonnade.DataError, match=f"1 of 2 ids.*{strange}") as refused:
        model.predict([known[0], strange])
    assert "run_.predict" in refused.value.hint


@pytest.mark.slow
def test_a_range_with_a_name_may_be_the_key(tmp_path: Path) -> None:
    rows = pd.RangeIndex(240, name="id")
    tables = {name: pd.DataFrame({name: MATRIX[:, at]}, index=rows) for at, name in enumerate(("bank", "clinic"))}
    tables["server"] = pd.DataFrame({"label": LATE}, index=rows)
    model = ColonnadeClassifier(
        {"name": "hetero_lr", "aggregate": "clear"}, out=tmp_path, config={"federation": {"rounds": 1}}
    ).fit(tables)
    assert model.predict([7, 9]).shape == (2,)


@pytest.mark.slow
def test_a_grid_search_fits_a_regressor(tmp_path: Path) -> None:
    grid = {"config": [{"federation": {"epochs": 1}}, {"federation": {"epochs": 12}}]}
    found = GridSearchCV(ColonnadeRegressor(out=tmp_path), grid, cv=2).fit(
        pd.DataFrame(MATRIX), SUM
    )  # columns without names
    assert found.best_params_["config"]["federation"]["epochs"] == 12 and found.best_score_ > 0.5


@pytest.mark.parametrize(
    ("rows", "labels", "given", "words"),
    [
        (MATRIX, None, {}, "requires y"),
        (MATRIX, LATE[:9], {}, "inconsistent numbers of samples"),
        (MATRIX, np.full(240, "no"), {}, "one class, 'no'"),
        (MATRIX, SUM, {}, "continuous"),
        (MATRIX[0], LATE, {}, "2D"),
        (np.where(MATRIX > 2, np.nan, MATRIX), LATE, {}, "NaN"),
        (MATRIX, LATE, {"parties": 5}, "parties=5"),
        (frame().set_index(frame()["debt"].rename("row")), LATE, {"parties": 6}, "5 feature.*parties=6"),
        (frame(), LATE, {"parties": {"bank": ["income"]}}, "'debt' belongs to no party"),
        (frame(), LATE, {"parties": {"bank": ["income", "income"]}}, "'income' is named twice"),
        (frame(), LATE, {"parties": {"bank": ["age"]}}, "no column 'age'"),
    ],
)
def test_wrong_input_trains_nothing(tmp_path: Path, rows: Any, labels: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ColonnadeClassifier(out=tmp_path / "runs", **given).fit(rows, labels)
    assert not (tmp_path / "runs").exists()


def test_the_classes_are_those_of_the_labels(tmp_path: Path) -> None:
    named = {"federation": {"classes": ["no", "yes"]}}
    with pytest.raises(colonnade.ConfigError, match=r"federation\.classes = .*from the labels, 2"):
        ColonnadeClassifier(out=tmp_path / "runs", config=named).fit(MATRIX, LATE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tables: tables.pop("server"), "none of the 'server'"),
        (lambda tables: tables["server"].drop(columns="late", inplace=True), "no column 'late'"),
        (lambda tables: tables.update(server=tables["server"].assign(late=None)), "'late' is missing in 240 rows"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, change: Any, words: str) -> None:
    tables = make_tables()
    change(tables)
    with pytest.raises(colonnade.DataError, match=words):
        ColonnadeClassifier(label="late", out=tmp_path / "runs").fit(tables)
    with pytest.raises(colonnade.DataError, match="y is given beside tables"):
        ColonnadeClassifier(label="late").fit(make_tables(), LATE)
    assert not (tmp_path / "runs").exists()
