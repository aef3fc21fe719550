"""A configuration as a caller gives it: a file, a mapping or typed sections, with tables from memory if there are any.

Tables are written into the run's folder as Arrow files, RUN/parties/NAME/table.arrow and RUN/table.arrow. From there on
such a run is one of files: it can be resumed, asked for predictions and reported like any other.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ColonnadeError, ConfigError, InputError
from colonnade.common.parsing.error_messages import TEMPLATE
from colonnade.common.parsing.file import parse
from colonnade.common.parsing.yaml_tree import override, read_tree
from colonnade.common.runtime.run_folder import RunFolder
from colonnade.launcher.readiness import check_members
from colonnade.launcher.tables import InMemoryTable

ConfigLike = str | Path | Mapping[str, Any] | BaseModel
"""A YAML file, its content as a mapping, or typed sections such as `colonnade.Config`."""


@dataclass(frozen=True)
class GivenConfig:
    """A configuration, unchecked.

    Args:
        tree: its content.
        base: the folder that paths in it are relative to.
        file: it was read from; None for a mapping.
        tables: by member.
    """

    tree: Mapping[str, Any]
    base: Path
    file: Path | None = None
    tables: Mapping[str, InMemoryTable] = field(default_factory=dict)

    @classmethod
    def of(cls, config: ConfigLike, tables: Mapping[str, Any] | None = None, sets: Sequence[str] = ()) -> GivenConfig:
        """Takes a configuration, and the sources that are not files.

        Args:
            config: a path, a mapping as in YAML, or typed sections.
            tables: whatever speaks the Arrow C stream interface, by the name of its member; `server` for the labels.
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
        found = {name: InMemoryTable(name, table) for name, table in (tables or {}).items()}
        return cls(_with_roster(tree, found), base, file, found)

    @property
    def where(self) -> str:
        """Its name in messages."""
        return "config" if self.file is None else str(self.file)

    def check(self) -> Config:
        """The configuration, checked, with every member's section. Nothing is written; tables have no place yet.

        Raises:
            ConfigError: a key or a value is not allowed, or a member is missing.
        """
        return self._parsed(Path("/"))

    def put(self, folder: Path) -> Config:
        """The same, with the tables written into a run's folder.

        Raises:
            EnvironmentFault: a table cannot be written.
            DataError: a table cannot be read.
        """
        config = self._parsed(folder)
        self.write_tables(folder)
        return config

    def placed(self, folder: Path) -> dict[str, Any]:
        """Its content, with the sources of tables that lie in a folder. Raises ConfigError."""
        tree = copy.deepcopy(dict(self.tree))
        for name in self.tables:
            _set_source(tree, name, _place(folder, name))
        if self.tables:
            _refuse_missing(tree)
        return tree

    def write_tables(self, folder: Path) -> None:
        """Writes the tables into a folder. Raises EnvironmentFault, DataError."""
        for name, table in self.tables.items():
            table.write(_place(folder, name))

    def _parsed(self, folder: Path) -> Config:
        config = parse(self.placed(folder))
        check_members(config, self.where)
        return config


def _place(folder: Path, member: str) -> Path:
    return RunFolder(folder).member(member).path / "table.arrow"


def _with_roster(tree: dict[str, Any], tables: Mapping[str, InMemoryTable]) -> dict[str, Any]:
    """The tree, whose roster is that of the tables if it has none. Raises InputError for a table of nobody."""
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


def _set_source(tree: dict[str, Any], member: str, path: Path) -> None:
    """Points a member's section to its table. Raises ConfigError if it names another source."""
    own = tree if member == SERVER else tree.setdefault("parties", {})
    if not isinstance(own, dict):
        return  # refused later
    section = dict(own.get(member) or {})
    key = "labels" if member == SERVER else "data"
    data = dict(section.get(key) or {})
    template = ((tree.get(TEMPLATE) or {}).get("data") or {}) if member != SERVER else {}
    if named := data.get("source") or template.get("source"):
        raise ConfigError(
            f"tables[{member!r}]: the configuration names a source too, {named!r}",
            hint=f"leave `source` and its path out of {member}'s `{key}`, or leave the table out",
        )
    own[member] = {**section, key: {**data, "source": "arrow", "path": str(path)}}


def _refuse_missing(tree: Mapping[str, Any]) -> None:
    """Raises ConfigError for a member that has neither a table nor a source. Malformed sections are refused later."""
    roster = (tree.get("federation") or {}).get("parties") or ()
    template = (tree.get(TEMPLATE) or {}).get("data") or {}
    parties = tree.get("parties") or {}
    for name in (SERVER, *(roster if isinstance(roster, list | dict) else ())):
        own = (tree.get(SERVER) if name == SERVER else parties.get(name)) or {}
        key = "labels" if name == SERVER else "data"
        data = (own.get(key) or {}) if isinstance(own, dict) else {}
        if isinstance(data, dict) and not ({"source"} & {*data, *(template if name != SERVER else ())}):
            raise ConfigError(
                f"{name} has no table, and its `{key}` names no source",
                hint=f"give tables[{name!r}], or `source` and its path",
            )


@contextmanager
def naming_tables(given: GivenConfig) -> Iterator[None]:
    """Names a table in errors as its caller does: its file is removed with a run that never began."""
    try:
        yield
    except ColonnadeError as error:
        text = str(error)
        for name in sorted(given.tables, key=lambda name: name == SERVER):  # its path is the end of any other
            place = _place(Path("/"), name).as_posix()
            text = re.sub(rf"/\S*{re.escape(place)}", f"tables[{name!r}]", text)
        error.args = (text, *error.args[1:])
        raise


def _plain(value: Any) -> Any:
    """Typed sections as keys and values: those that were set."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, Mapping):
        return {key: _plain(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(below) for below in value]
    return str(value) if isinstance(value, Path) else value
