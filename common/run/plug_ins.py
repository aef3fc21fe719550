"""Plug-ins: parts of other installed packages, found by their entry points. See docs/plug_ins.md.

A group of entry points is one kind of part: `colonnade.protocols`, `.sources`, `.models`, `.losses`, `.metrics`,
`.trackers`. An entry is a name, as a configuration uses it, and an object of the package. Nothing is imported before a
configuration names it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from colonnade.common.errors import ColonnadeError, ConfigError, nearest
from colonnade.common.run.user_code import in_place, interrupts, note_package

PREFIX = "colonnade."


class PlugIns:
    """Entry points of one group.

    Args:
        kind: the group's part of the name, a plural: `protocols` for the group `colonnade.protocols`.
        taken: names of the built-in parts.
    """

    def __init__(self, kind: str, taken: Collection[str]) -> None:
        self.group, self.taken = f"{PREFIX}{kind}", taken
        self._what = {"losses": "loss"}.get(kind, kind.removesuffix("s"))
        self._loaded: dict[str, Any] = {}

    @cached_property
    def _found(self) -> Mapping[str, list[EntryPoint]]:
        found: dict[str, list[EntryPoint]] = {}
        for entry in entry_points(group=self.group):
            found.setdefault(entry.name, []).append(entry)
        return found

    @property
    def entries(self) -> Mapping[str, EntryPoint]:
        """The entries by name, without those named as a built-in part; of two with one name the first."""
        return {name: entries[0] for name, entries in self._found.items() if name not in self.taken}

    @property
    def registered(self) -> list[EntryPoint]:
        """All entries, also those whose name is taken."""
        return [entry for entries in self._found.values() for entry in entries]

    @property
    def loaded(self) -> tuple[str, ...]:
        """Names of the parts that were imported."""
        return tuple(self._loaded)

    def refuse_clash(self, name: str) -> None:
        """Refuses a name that two parts have: no other code may run under it."""
        entries = self._found.get(name, [])
        builtin = name in self.taken
        if len(entries) + builtin < 2:
            return
        first = "Colonnade" if builtin else owner(entries[0])
        raise ConfigError(
            f"{owner(entries[-1])} registers a {self._what} {name!r}, a name that is taken by {first}",
            hint=f"uninstall {package(entries[-1])}, or ask its authors for another name in its entry points "
            f"({self.group})",
        )

    def unknown(self, name: object, allowed: Iterable[str] = ()) -> tuple[str, str]:
        """The message about a name that no part has, and its hint; `allowed` are built-in parts possible here."""
        known = [*allowed, *self.entries]
        hint = f"one of {', '.join(known)}; or " if known else ""
        return (
            f"unknown {self._what}{nearest(str(name), known)}",
            f"{hint}install the package that registers it ({self.group}) on this machine",
        )

    def load(self, name: str) -> Any:
        """The object of an entry, imported once.

        Raises:
            KeyError: there is none.
            ConfigError: the import fails, or another part has the same name.
        """
        if name not in self._loaded:
            entry = self.entries[name]
            self.refuse_clash(name)
            note_package(entry.module)
            try:
                self._loaded[name] = entry.load()
            except BaseException as broken:
                if interrupts(broken):
                    raise
                raise ConfigError(
                    f"the {self._what} {name} of {owner(entry)} cannot be imported: {in_place(broken)}",
                    hint=f"install a version of {package(entry)} that works, or leave the name out",
                ) from broken
        return self._loaded[name]

    def version(self, name: str) -> str:
        """`PACKAGE VERSION` of an entry's package."""
        return owner(self.entries[name])

    def describe(self, name: str) -> str:
        """`the loss NAME of PACKAGE VERSION`, for messages."""
        return f"the {self._what} {name} of {self.version(name)}"

    def unfit(self, name: str, why: str) -> ConfigError:
        """The error of an entry whose object is of the wrong kind or returns a wrong result; `why` says which."""
        return ConfigError(
            f"{self.describe(name)}: {why}",
            hint=f"install a version of {package(self.entries[name])} that works with this Colonnade; its authors find "
            "what a part must be in docs/plug_ins.md",
        )

    @contextmanager
    def blamed(self, name: str, kind: type[ColonnadeError] = ConfigError) -> Iterator[None]:
        """Names the part and its package in any error of its code but a ColonnadeError; raises it as `kind`."""
        try:
            yield
        except ColonnadeError:
            raise
        except BaseException as failed:  # sys.exit too: it would end the process silently
            if interrupts(failed):
                raise
            raise kind(
                f"{self.describe(name)} failed: {in_place(failed)}",
                hint=f"correct the keys given to it, or install a version of {package(self.entries[name])} that works",
            ) from failed

    def forget(self) -> None:
        """Looks the entries up anew at their next use, for tests that install packages."""
        self.__dict__.pop("_found", None)
        self._loaded.clear()


class Extended(ABC):
    """Annotation of a union of config models that plug-ins extend, for messages about its values."""

    @property
    @abstractmethod
    def plug_ins(self) -> PlugIns:
        """The plug-ins."""

    @abstractmethod
    def options(self) -> list[Any]:
        """Models of the plug-ins; for those not imported a stand-in that has only its name."""


def package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def owner(entry: EntryPoint) -> str:
    """`PACKAGE VERSION` of an entry."""
    return package(entry) if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
