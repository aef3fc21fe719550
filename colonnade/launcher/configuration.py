"""A configuration as a caller gives it: a file, a mapping or typed sections, perhaps with tables in memory.

Tables are written into the run's folder as Arrow files, RUN/parties/NAME/table.arrow and RUN/table.arrow. After that
such a run is one of files: it can be resumed, asked for predictions and reported like any other.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.names import TEMPLATE
from colonnade.common.errors import ColonnadeError, ConfigError, DataError, InputError, disk_faults
from colonnade.common.parsing.dump import set_tree
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import override, read_tree
from colonnade.common.run.files import open_own
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.readiness import check_members


class InMemoryTable:
    """One member's table.

    Args:
        table: has `__arrow_c_stream__`.
    """

    def __init__(self, member: str, table: Any) -> None:
        self._member, self._table = member, table
        if not hasattr(table, "__arrow_c_stream__"):
            raise DataError(
                f"tables[{member!r}] is a {type(table).__name__}, which has no Arrow C stream",
                hint="give a table of pandas 2.2 or newer, polars, pyarrow or DuckDB; or a file in the configuration",
            )

    def write(self, path: Path) -> None:
        """Writes an Arrow file, without an unnamed row index; a named one is marked as such.

        Raises DataError for a column with values of several types, EnvironmentFault.
        """
        from colonnade.common.data.formats import arrow_table  # noqa: PLC0415  # pyarrow

        named = _index_names(self._table)
        content = self._table.reset_index() if named else self._table
        found = arrow_table.read_arrow(content, f"tables[{self._member!r}]")
        of_file = () if named else arrow_table.index_columns(found.schema)  # an Arrow table that pandas has written
        kept = found.drop_columns([name for name in of_file if name.startswith("__index_level_")])
        kept = arrow_table.with_index(kept, [name for name in (*named, *of_file) if name in kept.column_names])
        with disk_faults(f"{path} cannot be written", "make room on the disk"):
            path.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), "wb") as opened:
                arrow_table.write_arrow(kept, opened)


def _index_names(table: Any) -> list[str]:
    """Columns made from a pandas index, such as the key; none if it has no name."""
    names = [*getattr(getattr(table, "index", None), "names", ())]
    if all(name is None for name in names):
        return []
    return [f"level_{level}" if name is None else str(name) for level, name in enumerate(names)]


ConfigLike = str | Path | Mapping[str, Any] | BaseModel
"""A YAML file, its content as a mapping, or typed sections such as `colonnade.Config`."""


@dataclass(frozen=True)
class GivenConfig:
    """A configuration, unchecked.

    Args:
        base: the folder that paths in it are relative to.
    """

    tree: Mapping[str, Any]
    base: Path
    file: Path | None = None
    tables: Mapping[str, InMemoryTable] = field(default_factory=dict)

    @classmethod
    def of(cls, config: ConfigLike, tables: Mapping[str, Any] | None = None, sets: Sequence[str] = ()) -> GivenConfig:
        """Takes a configuration, and the sources that are not files.

        Args:
            tables: objects with the Arrow C stream interface, by member; `server` for the labels.
            sets: KEY=VALUE, as for `--set`.

        Raises:
            ConfigError: the file cannot be read, or is of another kind.
            DataError: an object is no table.
        """
        if isinstance(config, str | Path):
            file = Path(config)
            tree, base = read_tree(file), file.parent.resolve()
        else:
            file, base = None, Path.cwd()
            tree = _plain(config)
            if not isinstance(tree, dict):
                raise ConfigError(
                    f"config is a {type(config).__name__}", hint="give a path, a mapping, or a colonnade.Config"
                )
        for setting in sets:
            override(tree, setting)
        if tables is not None and not isinstance(tables, Mapping):
            raise DataError(
                f"tables is a {type(tables).__name__}", hint='give a dict: {"server": labels, "bank": columns, ...}'
            )
        found = {str(name): InMemoryTable(str(name), table) for name, table in (tables or {}).items()}
        return cls(_with_roster(tree, found), base, file, found)

    @property
    def where(self) -> str:
        return "config" if self.file is None else str(self.file)

    def refuse_own(self, out: Path | None) -> None:
        """Raises InputError if a run in this folder would overwrite its own configuration, or a file by a table."""
        if out is None:
            return
        run = RunFolder(out.resolve())
        if self.file is not None and self.file.resolve() in (run.config, run.server_config):
            raise InputError(
                f"--out {out}: the run would overwrite {self.file}", hint="choose another folder for the run"
            )
        for name in self.tables:
            if (place := _place(run.path, name)).exists():
                raise InputError(f"{place} is there already", hint="choose another folder for the run")

    def places(self, folder: Path) -> dict[str, Path]:
        """Files of the tables in a run's folder, by member."""
        return {name: _place(folder, name) for name in self.tables}

    def check(self) -> Config:
        """The checked configuration, with every member's section. Writes nothing. Raises ConfigError."""
        return self._parsed(Path("/"))

    def put(self, folder: Path) -> Config:
        """The checked configuration, with the tables written into a run's folder. Raises EnvironmentFault,
        DataError.
        """
        config = self._parsed(folder)
        self.write_tables(folder)
        return config

    def placed(self, folder: Path) -> dict[str, Any]:
        """Its content, with sources that point to the tables in a folder. Raises ConfigError."""
        tree = copy.deepcopy(dict(self.tree))
        for name in self.tables:
            _set_source(tree, name, _place(folder, name))
        if self.tables:
            _refuse_missing(tree)
        return tree

    def write_tables(self, folder: Path) -> None:
        for name, table in self.tables.items():
            table.write(_place(folder, name))

    def _parsed(self, folder: Path) -> Config:
        config = parse(self.placed(folder))
        check_members(config, self.where)
        return config


def _place(folder: Path, member: str) -> Path:
    return RunFolder(folder).member(member).path / "table.arrow"


def _with_roster(tree: dict[str, Any], tables: Mapping[str, InMemoryTable]) -> dict[str, Any]:
    """The tree; a missing roster is taken from the tables. Raises InputError for a table of no member."""
    parties = [name for name in tables if name != SERVER]
    federation = tree.get("federation")
    if not isinstance(federation, dict) or not parties:
        return tree
    if federation.get("parties") is None:
        return {**tree, "federation": {**federation, "parties": parties}}
    named = federation["parties"]
    strangers = [name for name in parties if isinstance(named, list | dict) and name not in named]
    if strangers:
        raise InputError(
            f"tables[{strangers[0]!r}]: no party of this name is in federation.parties",
            hint=f"the roster names {', '.join(map(str, named))}",
        )
    return tree


def _data_of(tree: dict[str, Any], member: str) -> dict[str, Any] | None:
    """A member's `labels` or `data`, made if it is missing; None if a section is malformed, which is refused later."""
    node = tree
    for key in (SERVER, "labels") if member == SERVER else ("parties", member, "data"):
        if not isinstance(below := {} if node.get(key) is None else node[key], dict):
            return None
        node[key] = dict(below)  # of its own: an alias in YAML is the same object in several places
        node = node[key]
    return node


def _named_source(tree: Mapping[str, Any], member: str, data: Mapping[str, Any]) -> Any:
    """The source in a member's section, or in the section of every party; None without one."""
    shared = tree.get(TEMPLATE) if member != SERVER else None
    template = shared.get("data") if isinstance(shared, dict) else None
    return data.get("source") or (template.get("source") if isinstance(template, dict) else None)


def _set_source(tree: dict[str, Any], member: str, path: Path) -> None:
    """Points a member's section to its table. Raises ConfigError if it names another source."""
    if (data := _data_of(tree, member)) is None:
        return
    if named := _named_source(tree, member, data):
        key = "labels" if member == SERVER else "data"
        raise ConfigError(
            f"tables[{member!r}]: the configuration names a source too, {named!r}",
            hint=f"leave `source` and its path out of {member}'s `{key}`, or leave the table out",
        )
    data |= {"source": "arrow", "path": str(path)}


def _refuse_missing(tree: dict[str, Any]) -> None:
    """Raises ConfigError for a member that has neither a table nor a source."""
    federation = tree.get("federation")
    roster = federation.get("parties") if isinstance(federation, dict) else ()
    for name in (SERVER, *(roster if isinstance(roster, list | dict) else ())):
        data = _data_of(tree, name) if isinstance(name, str) else None
        if data is not None and not _named_source(tree, name, data):
            raise ConfigError(
                f"{name} has no table, and its `{'labels' if name == SERVER else 'data'}` names no source",
                hint=f"give tables[{name!r}], or `source` and its path",
            )


def with_names(text: str, places: Mapping[str, Path]) -> str:
    """Replaces the files of tables in memory, by member, by the caller's names, and rows by positions in the table."""
    for name in sorted(places, key=lambda name: name == SERVER):  # the server's path may be part of another's
        called, path = f"tables[{name!r}]", str(places[name])
        row = re.compile(re.escape(path) + r", row (\d+)")
        text = row.sub(lambda at, called=called: f"{called}, row {int(at[1]) - 1} (counted from 0)", text)  # type: ignore[misc]
        text = text.replace(path, called)
    return text


@contextmanager
def naming_tables(places: Mapping[str, Path]) -> Iterator[None]:
    """`with_names` in errors: the file of a run that never began is removed."""
    try:
        yield
    except ColonnadeError as error:
        error.args = (with_names(str(error), places), *error.args[1:])
        error.hint = with_names(error.hint, places)
        raise


def _plain(value: Any) -> Any:
    """Typed sections as keys and values, only those that were set."""
    if isinstance(value, BaseModel):
        return set_tree(value)
    if isinstance(value, Mapping):
        return {key: _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    if isinstance(value, Path):
        return str(value)
    return value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
