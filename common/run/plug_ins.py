"""Plug-ins: parts of other installed packages, found by entry points (docs/plug_ins.md), and errors in their code.

A group of entry points is one kind of part: `colonnade.protocols`, `.sources`, `.models`, `.losses`, `.metrics`,
`.trackers`. An entry is a name, as a configuration uses it, and an object of the package. Nothing is imported before a
configuration names it.

An error in code that is not Colonnade's, a plug-in or a user's own model or head, names the file and the line. It
counts as such if a frame of its traceback is in that code, wherever in PyTorch it was raised. The backward pass of an
operation leaves no frame: there the member's own model is named if PyTorch raised the error.
"""

from __future__ import annotations

import inspect
import traceback
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType
from typing import Any

from colonnade.common.errors import ColonnadeError, ConfigError, nearest

_SUSPENDED = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR  # they are ended where they wait

_FOLDERS: set[Path] = set()  # of files that a configuration names
_PACKAGES: set[str] = set()  # top modules of installed plug-ins


class UserCodeFault(ConfigError):
    """Code that a member's configuration names has failed. `member` is "" where it is not known."""

    telling = "its own model or plug-in has failed"

    def __init__(self, message: str, *, hint: str = "", member: str = "") -> None:
        super().__init__(f"{member}: {message}" if member else message, hint=hint)
        self.member = member


def note_file(path: Path) -> None:
    """Counts a file, and the modules beside it, as a user's code."""
    _FOLDERS.add(path.resolve().parent)


def note_package(module: str) -> None:
    _PACKAGES.add(module.partition(".")[0])


def interrupts(error: BaseException) -> bool:
    """True if a computation was ended from outside. A user's function could raise a CancelledError of its own."""
    if isinstance(error, Exception | SystemExit | KeyboardInterrupt):
        return isinstance(error, KeyboardInterrupt)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return not frames or not _is_users(frames[-1]) or bool(frames[-1].f_code.co_flags & _SUSPENDED)


def said_by(error: BaseException) -> str:
    """`CLASS: MESSAGE`, one line: the first line of the message that is not blank."""
    try:
        lines = str(error).splitlines()
    except Exception:  # noqa: BLE001  # a user's class
        lines = ["its message cannot be read"]
    return f"{type(error).__name__}: {next(filter(str.strip, lines), '')}"


def place_of(error: BaseException) -> str:
    """`FILE, line N, in FUNCTION` of the innermost frame in a user's code; "" if there is none."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        if _is_users(frame):
            found = f"{frame.f_code.co_filename}, line {line}, in {frame.f_code.co_name}"
    return found


def in_place(error: BaseException) -> str:
    """`CLASS: MESSAGE`, one line, followed by the place in a user's code if there is one."""
    place = place_of(error)
    said = said_by(error)
    return f"{said} ({place})" if place else said


@contextmanager
def naming_user_code(member: str, own: Sequence[str] = ()) -> Iterator[None]:
    """Names a member, file and line in an error of its own code, also one that would end the process.

    `member` is its section, `parties.NAME` or `server`; `own` says what in it is a user's code: `model
    ./tower.py:Tower`.
    """
    try:
        yield
    except UserCodeFault as fault:
        if fault.member:
            raise
        raise UserCodeFault(str(fault), hint=fault.hint, member=member) from fault
    except ColonnadeError:
        raise
    except BaseException as error:
        if interrupts(error) or (found := user_fault(error, member, own)) is None:
            raise
        raise found from error


def user_fault(error: BaseException, member: str = "", own: Sequence[str] = ()) -> UserCodeFault | None:
    """The error that names a user's code as the cause of another; None if it is not. See `naming_user_code`."""
    if isinstance(error.__cause__, StopIteration):  # Python wraps one that leaves a coroutine
        error = error.__cause__
    said = said_by(error)
    hint = "this is an error of that code, not of Colonnade; --debug shows all of its traceback"
    if place := place_of(error):
        return UserCodeFault(f"{place}: {said}", hint=hint, member=member)
    if own and _raised_by_torch(error):
        what = " and ".join(own)
        return UserCodeFault(
            f"{said}: raised by PyTorch while it computed with {what}, perhaps in its backward pass", hint=hint,
            member=member,
        )  # fmt: skip
    return None


def _raised_by_torch(error: BaseException) -> bool:
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and str(frames[-1][0].f_globals.get("__name__", "")).partition(".")[0] == "torch"


def _is_users(frame: FrameType) -> bool:
    module = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if module == "colonnade":
        return False
    if module in _PACKAGES:
        return True
    path = Path(frame.f_code.co_filename)
    return "site-packages" not in path.parts and any(folder in path.parents for folder in _FOLDERS)


PREFIX = "colonnade."


class PlugIns:
    """Entry points of one group.

    Args:
        kind: the group's part of the name, a plural: `protocols` for the group `colonnade.protocols`.
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
                    hint=f"correct it, install a version of {package(entry)} that works, or leave the name out",
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
    def plug_ins(self) -> PlugIns: ...

    @abstractmethod
    def options(self) -> list[Any]:
        """Models of the plug-ins; for those not imported a stand-in that has only its name."""


def package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else entry.value


def owner(entry: EntryPoint) -> str:
    """`PACKAGE VERSION` of an entry."""
    return package(entry) if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
