"""Errors in code that is not Colonnade's: a user's own model or head, or a plug-in. They name the file and the line.

An error counts as such if a frame of its traceback is in that code, wherever in PyTorch it was raised. The backward
pass of an operation leaves no frame: there the member's own model is named if PyTorch raised the error.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from colonnade.common.errors import ColonnadeError, ConfigError

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
    """Counts an installed package as code of a plug-in."""
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
