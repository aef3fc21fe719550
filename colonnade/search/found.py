"""The result of a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from colonnade.reports.console.outputs import csv_text
from colonnade.reports.html.page import fragment
from colonnade.search.metrics import SearchMetric
from colonnade.search.space import Tree
from colonnade.search.study import TrialRecord, TrialStore

if TYPE_CHECKING:
    import optuna

_ABOUT = ("number", "state", "value", "evaluations", "seconds", "reason")


class Search:
    """A search that has ended, or was resumed.

    Attributes:
        metric: its name, such as `val_auc`.
        direction: `maximize` or `minimize`.
        best_config: the best configuration, as in best.yaml, with absolute paths.
        best_settings: its changes of the file, as for `--set`.
        best_value: the metric's, on the validation rows.
        evaluated: number of trials that have evaluated the validation rows.
    """

    def __init__(self, folder: Path, store: TrialStore, best: TrialRecord, config: Tree) -> None:
        assert best.value is not None  # a completed trial has one
        self.folder, self._store, self._best = folder, store, best
        self.metric, self.direction = store.goal.name, store.goal.direction
        self.best_config, self.best_settings, self.best_value = config, best.settings, best.value
        self.evaluated = looked(store.records())

    @property
    def study(self) -> optuna.Study:
        """Optuna's study, for its own plots and analyses."""
        return self._store.study

    @property
    def page(self) -> Path:
        """Path of tune.html."""
        return self.folder / "tune.html"

    @property
    def trials(self) -> pa.Table:
        """One row per trial: number, state, value, evaluations, seconds, reason, and a column per searched key.

        Columns of keys hold numbers, or texts of the choices.
        """
        records = self._store.records()
        columns: dict[str, Any] = {name: [getattr(record, name) for record in records] for name in _ABOUT}
        keys = [one.key for one in self._store.space]
        columns |= {key: _column([record.values.get(key) for record in records]) for key in keys}
        types = {"number": pa.int64(), "evaluations": pa.int64(), "value": pa.float64(), "seconds": pa.float64()}
        return pa.table({name: pa.array(column, types.get(name)) for name, column in columns.items()})

    def __repr__(self) -> str:
        return f"<colonnade.Search {self.folder}: {self.metric} {self.best_value:.4f} with {self.words}>"

    @property
    def words(self) -> str:
        return " ".join(self.best_settings)

    def _repr_html_(self) -> str:
        said = f"Search in {self.folder}: {self.metric} {self.best_value:.4f} with {self.words}"
        rows = [
            (record.number, record.state, value_words(record.value), " ".join(record.settings))
            for record in ranked(self._store.records(), self._store.goal)[:10]
        ]
        return rows_fragment(said, ("trial", "state", self.metric, "settings"), rows)


def rows_fragment(said: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A sentence and a table as HTML, for notebooks."""
    content = {"said": said, "head": head, "rows": rows}
    return str(fragment("rows.html", content, beside=Path(__file__).parent / "templates"))


def ranked(records: Sequence[TrialRecord], goal: SearchMetric) -> list[TrialRecord]:
    """Completed trials, best first, then the others in their order."""
    sign = -1 if goal.direction == "maximize" else 1

    def place(record: TrialRecord) -> tuple[bool, float, int]:
        done = record.state == "complete" and record.value is not None
        return not done, sign * (record.value or 0.0) if done else 0.0, record.number

    return sorted(records, key=place)


def looked(records: Sequence[TrialRecord]) -> int:
    """Number of trials that have evaluated the validation rows."""
    return sum(record.evaluations > 0 for record in records)


def value_words(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def as_csv(records: Sequence[TrialRecord], keys: Sequence[str]) -> str:
    rows = (
        [*(getattr(record, name) for name in _ABOUT), *(record.values.get(key) for key in keys)] for record in records
    )
    return csv_text([[*_ABOUT, *keys], *rows])


def _column(values: list[Any]) -> list[Any]:
    """Values of one type: all numbers, or all texts."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return [value if value is None or kinds == {int} else float(value) for value in values]
    return [None if value is None else str(value) for value in values]
