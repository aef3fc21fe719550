"""Predictions for ids in memory, as an Arrow table."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop

from colonnade.common.errors import DataError
from colonnade.common.run.own_loop import run_on_own_loop
from colonnade.launcher.named_tables import Tables
from colonnade.launcher.predictions import opened
from colonnade.server.prediction.model import Model, Said
from colonnade.server.prediction.terms import PredictionTerms


def predict_ids(
    folder: Path, ids: Iterable[object], file: Path | None, terms: PredictionTerms, tables: Tables | None = None
) -> pa.Table:
    """Asks the parties of a finished run for predictions.

    Args:
        ids: words or whole numbers, as in the server's table.
        tables: replace the training tables of members that are started here.

    Returns:
        A row for each id, in their order: `id` (string), then for classes `class` (string) and `p_NAME` (double) for
        each, for numbers one column a target (double). Null where some member does not know the id.

    Raises:
        DataError: there is no id, or one is neither a word nor a whole number.
        ColonnadeError: the run cannot predict, or a party has failed.
    """
    asked = id_words(ids)
    answered: list[pa.Table] = []

    async def ask(model: Model) -> None:
        answered.append(_table(asked, await model.say(asked), model))

    loop = partial(run_on_own_loop, loop_factory=uvloop.new_event_loop)
    with opened(folder, file, terms, tables=tables, loop=loop) as run:
        run.check()
        run.ask(ask, asked if run.aligns else None)
    return answered[0]


def id_words(ids: Iterable[object]) -> tuple[str, ...]:
    """Ids as words: whole numbers in decimal digits. Raises DataError."""
    if hasattr(ids, "columns"):
        raise DataError(f"ids is a {type(ids).__name__}, a whole table", hint="give its column of ids")
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) or getattr(ids, "ndim", 1) != 1:
        raise DataError(f"ids = {ids!r:.40}: expected several ids", hint="give a list, a column or an array of them")
    found = tuple(_word(place, id) for place, id in enumerate(_scalars(ids)))
    if not found:
        raise DataError("there are no ids to predict", hint="give at least one")
    return found


def _scalars(ids: Iterable[object]) -> Iterable[object]:
    """Python values: a column of Arrow, numpy or pandas has its own number types."""
    for convert in ("to_pylist", "tolist", "to_list"):
        if hasattr(ids, convert):
            values: Iterable[object] = getattr(ids, convert)()
            return values
    return ids


def _word(place: int, id: object) -> str:
    value = id.as_py() if hasattr(id, "as_py") else id
    with contextlib.suppress(UnicodeEncodeError):
        if isinstance(value, str) and value.strip() and value.encode():
            return str(value)
    if hasattr(value, "__index__") and not isinstance(value, bool) and not type(value).__name__.startswith("bool"):
        with contextlib.suppress(TypeError, ValueError):
            return str(operator.index(value))
    raise DataError(
        f"ids[{place}] is {id!r:.40}, of type {type(id).__name__}", hint="ids are words or whole numbers, none missing"
    )


def _table(asked: Sequence[str], said: dict[str, Said], model: Model) -> pa.Table:
    rows = [said.get(id) for id in asked]
    columns: dict[str, Any] = {"id": pa.array(asked, pa.string())}
    if model.classes:
        best = [None if row is None else row.label for row in rows]
        columns["class"] = pa.array(best, pa.string())
    for place, name in enumerate(model.names):
        column = [None if row is None else row.values[place] for row in rows]
        columns[f"p_{name}" if model.classes else name] = pa.array(column, pa.float64())
    return pa.table(columns)
