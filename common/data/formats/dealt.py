"""Tables as `colonnade deal` writes them: Parquet with typed columns and keys, not encoded.

Every party then encodes on its own training rows, as with the original table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from torch import Tensor

from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.fields import TypedColumn
from colonnade.common.data.labels import LabelColumn


def table_bytes(features: Features, key: str | None) -> bytes:
    """A Parquet file of typed columns, with their keys under the name `key` if they have any."""
    columns = {field.name: _column(field, features.values[:, place]) for place, field in enumerate(features.fields)}
    return _written(_with_keys(columns, features.ids, key))


def keyed_labels_bytes(labels: LabelColumn, key: str, label: str) -> bytes:
    """A Parquet file of two columns: keys, and the classes' names."""
    names = pa.DictionaryArray.from_arrays(pa.array(labels.values.numpy()), pa.array(labels.classes, pa.string()))
    return _written(_with_keys({label: names.cast(pa.string())}, labels.ids, key))


def _column(field: TypedColumn, values: Tensor) -> pa.Array:
    cells = values.numpy()
    absent = np.isnan(cells)
    if field.words is None:
        return pa.array(cells, mask=absent)
    codes = pa.array(np.where(absent, 0, cells).astype(np.int32), mask=absent)
    return pa.DictionaryArray.from_arrays(codes, pa.array(field.words, pa.string())).cast(pa.string())


def _with_keys(columns: dict[str, pa.Array], ids: Sequence[str] | None, key: str | None) -> pa.Table:
    return pa.table(columns if ids is None or key is None else {key: pa.array(list(ids), pa.string()), **columns})


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pa_parquet.write_table(table, sink)
    written: bytes = sink.getvalue().to_pybytes()
    return written
