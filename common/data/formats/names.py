"""Names of a table's columns."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.errors import DataError


def refuse_twice(where: str, names: Sequence[str], hint: str = "rename one of them") -> None:
    """Raises DataError if two columns have one name: in one pass, for a table may have a hundred thousand columns."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: two columns are called {name!r}", hint=hint)
        seen.add(name)
