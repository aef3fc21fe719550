"""Runs one input against one reader, and says if the reader kept its word.

A reader returns a value or raises an error that it declares, in bounded time and memory, and changes no file.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from tests.fuzz.mutations.plain import Mutate, mutate_bytes

SECONDS = 5.0
"""Processor time of an input: a thousand times as much as any needs."""

MEMORY = 512 << 20
"""Address space that an input may take beyond what the process has."""

_FAITHFUL = 0.97  # share of inputs that are read as what they were made of


@dataclass(frozen=True)
class Case:
    """An input.

    Args:
        variant: of the target: the codec, the form, the kind of file.
        data: that the reader reads.
    """

    variant: str
    data: bytes

    def kept(self) -> bytes:
        """Content of its file."""
        return self.variant.encode() + b"\n" + self.data

    @classmethod
    def of(cls, content: bytes) -> Case:
        """The case in a file."""
        variant, _, data = content.partition(b"\n")
        return cls(variant.decode(), data)


class Broken(Exception):
    """A reader returned something that it must not return."""


class TooSlow(BaseException):
    """An input took more than `SECONDS`. No handler of `Exception` stops it."""


@dataclass(frozen=True)
class Target:
    """A reader.

    Args:
        name: of the target, and of its folder in the corpus.
        make: returns the reader as a function of variant and bytes; called once a process. It raises `Broken` if a
            result does not hold what it promises.
        seeds: valid inputs.
        errors: classes that the reader declares; `ColonnadeError` is one of them for every reader of a product's file.
        mutate: makes an input of another.
        count: of inputs in the test suite.
    """

    name: str
    make: Callable[[], Callable[[str, bytes], object]]
    seeds: Callable[[], Sequence[Case]]
    errors: tuple[type[Exception], ...]
    mutate: Mutate = mutate_bytes
    count: int = 700

    @cached_property
    def read(self) -> Callable[[str, bytes], object]:
        """The reader."""
        return self.make()

    @cached_property
    def pool(self) -> tuple[Case, ...]:
        """Seeds, and inputs that readers have failed on."""
        return (*self.seeds(), *kept_cases(self.name))


CORPUS = Path(__file__).parent / "corpus"


def kept_cases(name: str) -> list[Case]:
    """Inputs that were once read wrongly."""
    return [Case.of(path.read_bytes()) for path in sorted((CORPUS / name).glob("*.bin"))]


@dataclass(frozen=True)
class Failure:
    """An input that a reader failed on."""

    target: str
    case: Case
    error: BaseException

    def __str__(self) -> str:
        at = _last(self.error.__traceback__)
        where = "" if at is None else f" ({Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno})"
        return f"{self.target}: {type(self.error).__name__}: {str(self.error)[:300]}{where}"


def fuzz(
    target: Target, seed: int | str, count: int, before: Callable[[Case], None] | None = None
) -> tuple[int, list[Failure]]:
    """Runs `count` inputs.

    An input that ends at a line where no earlier one of this call ended joins those that others are made of.

    Args:
        target: the reader.
        seed: of the inputs.
        count: their number.
        before: is shown every input first, so that one that kills the process is known.

    Returns:
        The number of inputs that were read as valid, and the failures, one for each line of the code.
    """
    rng, read, errors, mutate = Random(f"{target.name} {seed}"), target.read, target.errors, target.mutate
    pool, ends, valid = list(target.pool), set[tuple[int, ...]](), 0
    failures: dict[tuple[int, ...], Failure] = {}
    with guarded():
        for _ in range(count):
            base, other = pool[int(rng.random() * len(pool))], pool[int(rng.random() * len(pool))]
            variant = base.variant if rng.random() < _FAITHFUL else other.variant
            data = mutate(rng, base.data, other.data)
            if before is not None:
                before(Case(variant, data))
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                read(variant, data)
                valid += 1
            except errors as error:
                end = _end(error)
                if end not in ends:
                    ends.add(end)
                    if len(data) < 1 << 14:
                        pool.append(Case(variant, data))
            except (Exception, TooSlow) as error:  # noqa: BLE001
                failures.setdefault(_end(error), Failure(target.name, Case(variant, data), error))
    return valid, list(failures.values())


def attempt(target: Target, case: Case) -> Failure | None:
    """Runs one input."""
    read = target.read
    with guarded():
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        try:
            read(case.variant, case.data)
        except target.errors:
            return None
        except (Exception, TooSlow) as error:  # noqa: BLE001
            return Failure(target.name, case, error)
    return None


def smaller(target: Target, failure: Failure, tries: int = 400) -> Failure:
    """The same failure with less data, if parts of it can be left out."""
    size = len(failure.case.data)
    size = size // 2 if size > 64 else size
    while size and tries > 0:
        at = 0
        while at < len(failure.case.data) and tries > 0:
            tries -= 1
            data = failure.case.data
            found = attempt(target, Case(failure.case.variant, data[:at] + data[at + size :]))
            if found is not None and type(found.error) is type(failure.error) and _line(found) == _line(failure):
                failure = found
            else:
                at += size
        size = size // 2 if size > 32 else size - 1
    return failure


def _line(failure: Failure) -> int:
    at = _last(failure.error.__traceback__)
    return 0 if at is None else at.tb_lineno


_armed = False
_hooked = False
_WRITES = frozenset(
    {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"}
)
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn", "socket.connect"})
_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _armed:
        return
    if event == "open":
        if isinstance(args[2], int) and args[2] & _FLAGS:
            raise Broken(f"it opens {args[0]} to write")
    elif event in _WRITES or event in _STARTS:
        raise Broken(f"it does {event} {args[:1]}")


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Readers inside change no file, start nothing, take little memory, and end."""
    global _armed, _hooked  # noqa: PLW0603
    if not _hooked:
        sys.addaudithook(_audit)
        _hooked = True
    before = signal.signal(signal.SIGVTALRM, _too_slow)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY, hard))
    _armed = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the cryptography package, about names that are too long
            yield
    finally:
        _armed = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def unguarded() -> Iterator[None]:
    """For what a target writes itself: the file that is read."""
    global _armed  # noqa: PLW0603
    was, _armed = _armed, False
    try:
        yield
    finally:
        _armed = was


def _too_slow(_signal: int, _frame: object) -> None:
    raise TooSlow(f"more than {SECONDS:g} s of processor time")


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _end(error: BaseException) -> tuple[int, ...]:
    """The lines in which an error was raised and passed on."""
    lines: list[int] = []
    at = error.__traceback__
    while at is not None:
        lines.append(at.tb_lineno)
        at = at.tb_next
    return tuple(lines[-4:])


def _last(at: TracebackType | None) -> TracebackType | None:
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at
