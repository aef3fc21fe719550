"""A database table or query result, through SQLAlchemy; the extra `sql` installs it.

Rows are fetched batch by batch through a server-side cursor where the database has one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from colonnade.common.data.known_sets.catalogue import find_file
from colonnade.common.data.table import BATCH, refuse_twice
from colonnade.common.errors import ConfigError, DataError, EnvironmentFault

try:
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
except ImportError:
    raise EnvironmentFault("SQLAlchemy is not installed", hint="pip install 'colonnade[sql]'") from None


class Database:
    """A database; nothing is read before it is requested.

    Args:
        url: in SQLAlchemy's form. A SQLite file's path is relative to `base`, and the file must exist.

    Raises:
        ConfigError: the URL cannot be read.
        DataError: there is no such file.
        EnvironmentFault: the database's driver is not installed.
    """

    def __init__(self, url: str, base: Path) -> None:
        try:
            read = sqlalchemy.make_url(url)
            if read.get_backend_name() == "sqlite" and read.database:
                # SQLite would make the file if it were not there.
                read = read.set(database=str(find_file(read.database, base, "database")))
            self.engine = sqlalchemy.create_engine(read)
        except (ArgumentError, NoSuchModuleError, ValueError):  # the error's text may contain part of the password
            hint = "for example sqlite:///me.db; in a password @, : and / are written %40, %3A and %2F"
            raise ConfigError("a database's URL cannot be used", hint=hint) from None
        except ImportError as error:
            raise EnvironmentFault(f"the database's driver is missing: {error}", hint="install it with pip") from None
        self.name = read.set(query={}).render_as_string(hide_password=True)  # a query may contain one too

    def failed(self, error: SQLAlchemyError) -> DataError:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        return DataError(f"{self.name}: {reason}", hint="try the same with the database's own client")


class DatabaseTable:
    """A table (`NAME` or `SCHEMA.NAME`), ordered by the columns of its key, if it has one."""

    def __init__(self, database: Database, name: str, key: Sequence[str]) -> None:
        self._database, self._name, self._key = database, name, key
        schema, _, bare = name.rpartition(".")
        try:
            found = sqlalchemy.inspect(database.engine).get_columns(bare, schema or None)
        except SQLAlchemyError as error:
            if isinstance(error, sqlalchemy.exc.NoSuchTableError):
                raise DataError(f"{database.name} has no table {name!r}", hint="correct `table`") from None
            raise database.failed(error) from None
        self.header = tuple(str(column["name"]) for column in found)
        self._table = sqlalchemy.table(bare, *map(sqlalchemy.column, self.header), schema=schema or None)

    def __str__(self) -> str:
        return f"{self._database.name}, table {self._name}"

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        asked = sqlalchemy.select(*(self._table.c[name] for name in columns))
        asked = asked.order_by(*(self._table.c[name] for name in self._key))
        yield from _rows(self._database, lambda link: link.execute(asked), columns)

    def place(self, row: int) -> str:
        return f"{self}, row {row + 1}"


class DatabaseQuery:
    """Result of a SELECT, in its own order."""

    def __init__(self, database: Database, query: str) -> None:
        self._database, self._query = database, query.strip().rstrip(";")
        try:
            with database.engine.connect().execution_options(stream_results=True) as link:
                self.header = tuple(_as_written(link, self._query).keys())
        except SQLAlchemyError as error:
            raise database.failed(error) from None
        refuse_twice(str(self), self.header, "give one of them another name (AS)")

    def __str__(self) -> str:
        return f"{self._database.name}, query"

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from _rows(self._database, lambda link: _as_written(link, self._query), columns)

    def place(self, row: int) -> str:
        return f"{self}, row {row + 1}"


def _as_written(link: sqlalchemy.Connection, query: str) -> sqlalchemy.CursorResult[Any]:
    """Runs a query without parameters: a colon or a percent sign in it stays unchanged."""
    return link.execution_options(no_parameters=True).exec_driver_sql(query)


def _rows(
    database: Database,
    ask: Callable[[sqlalchemy.Connection], sqlalchemy.CursorResult[Any]],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    try:
        with database.engine.connect().execution_options(stream_results=True, yield_per=BATCH) as link:
            result = ask(link)
            place = {name: at for at, name in enumerate(result.keys())}
            places = [place[name] for name in columns]
            for rows in result.partitions():
                yield pa.RecordBatch.from_arrays([_column([row[at] for row in rows]) for at in places], list(columns))
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise database.failed(error) from None


def _column(values: list[object]) -> pa.Array:
    """A column's cells. A database without column types (SQLite) may mix words and numbers: then all become words."""
    words = pa.array([None if value is None else str(value) for value in values], pa.string())
    if any(isinstance(value, uuid.UUID) for value in values):
        return words
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return words
