"""Plug-ins: parts of other installed packages, found by their entry points. See docs/plug_ins.md.

A group of entry points is one kind of part: `colonnade.protocols`, `.sources`, `.models`, `.losses`, `.metrics`,
`.trackers`. An entry is a name, as a configuration uses it, and an object of the package. Nothing is imported before a
configuration names it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from colonnade.common.errors import ConfigError


class PlugIns:
    """Entry points of one group.

    Args:
        kind: the group's part of the name, a plural: `protocols` for the group `colonnade.protocols`.
        taken: names of the built-in parts.
    """

    def __init__(self, kind: str, taken: Collection[str]) -> None:
        self.group, self._what, self._taken = f"colonnade.{kind}", kind.removesuffix("s"), taken
        self._loaded: dict[str, Any] = {}

    @cached_property
    def entries(self) -> Mapping[str, EntryPoint]:
        """The entries by name. Raises ConfigError if a name is taken: no other code may run under it."""
        found: dict[str, EntryPoint] = {}
        for entry in entry_points(group=self.group):
            if entry.name in self._taken or entry.name in found:
                raise ConfigError(
                    f"{package(entry)} registers a {self._what} {entry.name!r}, a name that is taken",
                    hint=f"give it another name in its entry points ({self.group}), or uninstall it",
                )
            found[entry.name] = entry
        return found

    def load(self, name: str) -> Any:
        """The object of an entry, imported once. Raises KeyError if there is none, ConfigError if the import fails."""
        if name not in self._loaded:
            entry = self.entries[name]
            try:
                self._loaded[name] = entry.load()
            except Exception as broken:
                said = f"the {self._what} {name} of {package(entry)} cannot be imported: {broken}"
                raise ConfigError(
                    said, hint="install a version of the package that works, or leave the name out"
                ) from broken
        return self._loaded[name]

    def version(self, name: str) -> str:
        """`PACKAGE VERSION` of an entry's package. Raises KeyError if there is none."""
        entry = self.entries[name]
        return package(entry) if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"

    def forget(self) -> None:
        """Looks the entries up anew at their next use, for tests that install packages."""
        self.__dict__.pop("entries", None)
        self._loaded.clear()


def package(entry: EntryPoint) -> str:
    """Name of the package of an entry."""
    return entry.dist.name if entry.dist is not None else entry.value
