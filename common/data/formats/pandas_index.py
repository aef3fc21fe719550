"""The row index of pandas among the columns of a table: its values say where a row stood, and perhaps its outcome."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_UNNAMED = re.compile(r"__index_level_\d+__")
"""An index without a name, also in a file that has lost the metadata."""

_KEY = b"pandas"


def index_columns(schema: pa.Schema) -> tuple[str, ...]:
    """The columns that are a row index, by their names and by the metadata that pandas writes."""
    stored = {found for found in _entries(schema) if isinstance(found, str)}
    return tuple(name for name in schema.names if name in stored or _UNNAMED.fullmatch(name))


def unwritten_index(schema: pa.Schema) -> tuple[str, ...]:
    """Names of an index that counts rows: pandas writes where it begins and ends, and no column."""
    said = (found.get("name") for found in _entries(schema) if isinstance(found, dict))
    return tuple(name for name in said if isinstance(name, str))


def with_index(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with these columns as its row index, and without any other metadata."""
    said = {_KEY: json.dumps({"index_columns": list(names)}).encode()} if names else None
    return table.replace_schema_metadata(said)


def _entries(schema: pa.Schema) -> list[Any]:
    try:
        found = json.loads((schema.metadata or {}).get(_KEY, b"{}"))
    except ValueError:
        return []
    entries = found.get("index_columns") if isinstance(found, dict) else None
    return entries if isinstance(entries, list) else []
