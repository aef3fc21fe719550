"""Federations as scikit-learn estimators, for searches, cross-validation, and comparisons with other models.

Members on other machines, ledgers and budgets need `colonnade up` or the members' commands. Some of scikit-learn's
conventions do not hold:

- A model is a folder with every member's part: a pickle holds the folder's path, and the folder stays.
- Columns belong to parties: a matrix is cut into parts, and each party scales and encodes its own.
- A row is one person of one class: no sample weights, no sparse matrices, no multi-label targets.
- One row is slower to predict than in one process: every call of `predict` starts a process for each party.
"""

from __future__ import annotations

import copy
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from colonnade import runs
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.formats.arrow_table import index_columns, read_arrow
from colonnade.common.errors import ConfigError, DataError
from colonnade.launcher.configuration import naming_tables

Parties = int | Mapping[str, Sequence[Any]]
"""Number of parties that get equal parts of the columns, or each party's columns by name or place."""

_ROW, _TARGET = "row", "target"


class _Federated(BaseEstimator):  # type: ignore[misc]
    """Base of both estimators."""

    def __init__(
        self,
        protocol: str | Mapping[str, Any] = "split",
        parties: Parties = 2,
        *,
        key: str = "id",
        label: str = "label",
        config: Mapping[str, Any] | None = None,
        processes: bool = False,
        out: str | Path | None = None,
        random_state: int | None = None,
    ) -> None:
        self.protocol = protocol
        self.parties = parties
        self.key = key
        self.label = label
        self.config = config
        self.processes = processes
        self.out = out
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: N803
        """Trains on all rows, and keeps the run as `run_`.

        Args:
            X: tables by member, of which `server` has the labels, aligned by their keys; or a matrix or a data frame
                (rows, columns), which is cut by `parties`.
            y: labels of the rows; None with tables.

        Raises:
            ValueError: invalid rows, columns or labels.
            ColonnadeError: the federation cannot use them, or failed.
        """
        if isinstance(X, Mapping) and not hasattr(X, "toarray"):  # a sparse matrix may be one too
            if y is not None:
                raise DataError("y is given beside tables", hint=f"the labels belong to the table {SERVER!r}")
            tables, key, label = dict(X), self.key, self.label
            if SERVER not in tables:
                raise DataError(f"tables: there is none of the {SERVER!r}", hint="it has the keys and the labels")
            targets = self._targets(_column(tables[SERVER], label))
            tables[SERVER] = _with(tables[SERVER], label, targets)
            self.columns_: dict[str, list[int]] | None = None
        else:
            if y is None:
                raise ValueError("requires y to be passed, but the target y is None")
            table = _as_table(X)
            validate_data(self, table if isinstance(X, pa.Table) else X, skip_check_array=True)
            check_consistent_length(table[0] if table.num_columns else [], y)
            key, label, targets = _ROW, _TARGET, self._targets(column_or_1d(y, warn=True))
            self._names, self.columns_ = table.column_names, self._cut(table.column_names)
            tables = self._tables(table)
            tables[SERVER] = pa.table({_ROW: np.arange(len(targets)), _TARGET: targets})
        start = runs.up if self.processes else runs.simulate
        out = None if self.out is None else Path(self.out) / f"run-{uuid.uuid4().hex[:12]}"
        self.run_ = start(self._configured(key, label, len(targets)), tables, out)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.non_deterministic = self.processes
        return tags

    def _targets(self, found: Any) -> Any:
        raise NotImplementedError

    def _agreed(self) -> dict[str, Any]:
        raise NotImplementedError

    def _said(self, X: Any) -> pa.Table:  # noqa: N803
        """The model's predictions for ids, or for the rows of a matrix like that of `fit`."""
        check_is_fitted(self)
        if self.columns_ is None:
            return _whole(self.run_.predict(X))
        if isinstance(X, Mapping) and not hasattr(X, "toarray"):
            raise DataError(f"X is a {type(X).__name__}", hint="give a matrix or a data frame of the columns of `fit`")
        table = _as_table(X)
        validate_data(self, table if isinstance(X, pa.Table) else X, reset=False, skip_check_array=True)
        # Names that only one of `fit` and this has (a warning above says so) do not count: places do.
        table = table.rename_columns(self._names)
        with tempfile.TemporaryDirectory(prefix="colonnade-") as folder:
            places = {}
            for name, own in self._tables(table).items():
                places[name] = Path(folder) / f"{name}.arrow"
                with pa.ipc.new_file(str(places[name]), own.schema) as file:
                    file.write_table(own)
            with naming_tables(places):
                return _whole(self.run_.predict(range(table.num_rows), tables=places))

    def _tables(self, table: pa.Table) -> dict[str, pa.Table]:
        assert self.columns_ is not None
        rows = pa.array(np.arange(table.num_rows))
        return {name: table.select(own).add_column(0, _ROW, rows) for name, own in self.columns_.items()}

    def _cut(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Places of every party's columns. Raises ValueError."""
        if isinstance(self.parties, int):
            if not 1 <= self.parties <= len(names):
                raise ValueError(f"{len(names)} feature(s) and parties={self.parties}: a party needs a column")
            parts = np.array_split(np.arange(len(names)), self.parties)
            return {f"party{number}": part.tolist() for number, part in enumerate(parts, 1)}
        found = {str(name): [_place(one, names) for one in own] for name, own in self.parties.items()}
        given = [place for own in found.values() for place in own]
        if twice := sorted({names[place] for place in given if given.count(place) > 1}):
            raise ValueError(f"parties: the column {twice[0]!r} is named twice")
        if unowned := [name for place, name in enumerate(names) if place not in given]:
            raise ValueError(f"parties: the column {unowned[0]!r} belongs to no party; drop it, or name its party")
        return found

    def _configured(self, key: str, label: str, rows: int) -> dict[str, Any]:
        """The configuration: this estimator's defaults, then the caller's `config`."""
        name = self.protocol if isinstance(self.protocol, str) else str(self.protocol.get("name"))
        whole = name in CONTRACTS and CONTRACTS[name].config.full_batch
        given = copy.deepcopy(dict(self.config or {}))
        own = dict(given.get("federation") or {})
        for name, value in self._agreed().items():
            if own.setdefault(name, value) != value:
                said = f"config: federation.{name} = {own[name]!r}: the estimator takes it from the labels, {value!r}"
                raise ConfigError(said, hint="leave it out")
        length = {} if {"rounds", "epochs"} & own.keys() else {"rounds": 100} if whole else {"epochs": 20}
        federation = {
            "id": "estimator", "protocol": self.protocol, "align": "psi", "batch": min(64, rows), **length,
            "rows": {"test": 0, "validation": 0}, "seed": self.random_state or 0, **own,
        }  # fmt: skip
        if self.columns_ is not None:  # cut from one matrix in this process: the alignment hides nothing
            federation.setdefault("keys", {"seeded": True})
        server, party = dict(given.get("server") or {}), dict(given.get("every_party") or {})
        server["labels"] = {"key": key, "label": label, **(server.get("labels") or {})}
        party["data"] = {"key": key, **(party.get("data") or {})}
        return {**given, "federation": federation, "server": server, "every_party": party}


class ColonnadeClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """Classification by a federation.

    Args:
        protocol: a name, or the content of `federation.protocol`.
        parties: how the columns of a matrix are cut; tables have parties of their own.
        key, label: columns of the tables.
        config: other keys of a configuration, such as `{"federation": {"epochs": 50}}`.
        processes: True for members in processes, as by `colonnade.up`; else they are simulated.
        out: folder for the folders of the runs; by default runs/.
        random_state: seed, int; None is 0.

    Attributes:
        classes_: labels in order, as given.
        run_: the `colonnade.Run`.
    """

    def predict(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """The likeliest class of each id, or of each row of a matrix; float or str (rows,), as the labels were."""
        said = self._said(X)
        found: np.ndarray[Any, Any] = self.classes_[said["class"].to_numpy().astype(int)]
        return found

    def predict_proba(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """Probabilities, float64 (rows, classes), in the order of `classes_`."""
        said = self._said(X)
        return np.stack([said[f"p_{number}"].to_numpy() for number in range(len(self.classes_))], axis=1)

    def _targets(self, found: Any) -> Any:
        check_classification_targets(found)
        self.classes_, numbers = np.unique(found, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"the labels have one class, {self.classes_[:1].tolist()[0]!r}: there is nothing to tell apart"
            )
        return numbers

    def _agreed(self) -> dict[str, Any]:
        return {"classes": len(self.classes_)}


class ColonnadeRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """Regression of one number by a federation; arguments as for `ColonnadeClassifier`."""

    def predict(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """The number of each id, or of each row of a matrix; float64 (rows,)."""
        found: np.ndarray[Any, Any] = self._said(X).column(1).to_numpy()
        return found

    def _targets(self, found: Any) -> Any:
        numbers = np.asarray(found, dtype=float)
        if len(numbers) < 2:
            raise ValueError("1 sample: there is no difference to learn")
        if not np.isfinite(numbers).all():
            raise ValueError("Input y contains NaN or infinity.")
        return numbers

    def _agreed(self) -> dict[str, Any]:
        return {"task": "regression"}


def _as_table(matrix: Any) -> pa.Table:
    """A matrix or a data frame, with names of its columns, and without its index. Raises ValueError, DataError."""
    if hasattr(matrix, "__arrow_c_stream__"):
        table = read_arrow(matrix, "X")
        return table.drop_columns([*index_columns(table.schema)])
    array = check_array(matrix, dtype=None, input_name="X")  # words stay words
    if array.dtype == object:
        array = check_array(array.astype(float), input_name="X")
    return pa.table({f"x{place}": column for place, column in enumerate(array.T)})


def _column(table: Any, name: str) -> Any:
    found = _as_table(table)
    if name not in found.column_names:
        raise DataError(f"tables[{SERVER!r}] has no column {name!r}", hint="name it by the argument `label`")
    column = found[name]
    if column.null_count:
        raise DataError(f"tables[{SERVER!r}]: {name!r} is missing in {column.null_count} rows", hint="leave them out")
    return np.asarray(column.to_pylist())


def _with(table: Any, name: str, values: Any) -> Any:
    if hasattr(table, "assign"):  # of pandas, whose index may be the key
        return table.assign(**{name: values})
    found = read_arrow(table, f"tables[{SERVER!r}]")
    return found.set_column(found.column_names.index(name), name, pa.array(values))


def _place(column: Any, names: Sequence[str]) -> int:
    if isinstance(column, str) and column in names:
        return names.index(column)
    if isinstance(column, int) and 0 <= column < len(names):
        return column
    raise ValueError(f"parties: there is no column {column!r}; there are {', '.join(names[:10])}")


def _whole(said: pa.Table) -> pa.Table:
    """Refuses rows that some member does not know: an array cannot represent them."""
    if unknown := said.column(1).null_count:
        first = said["id"][said.column(1).is_null().index(True).as_py()]
        raise DataError(
            f"{unknown} of {said.num_rows} ids are not known to every member, the first is {first}",
            hint="`run_.predict(ids)` gives a table with nulls for them",
        )
    return said


__all__ = ["ColonnadeClassifier", "ColonnadeRegressor"]
