"""Exceptions that Colonnade raises, grouped by which side is at fault.

    ColonnadeError
    ├── InputError            our input: a file, a value, a column; fix it and start again
    │   ├── ConfigError           a key or value of the configuration
    │   ├── DataError             a table, a label, a path
    │   ├── IdentityError         a key, a certificate, a revocation list
    │   └── CheckpointError       a checkpoint that is damaged, or of another owner
    ├── PeerError             the other end of the conversation
    │   ├── ContractError         a message that its protocol does not allow
    │   ├── RefusedError          the other end refused us, with a reason
    │   ├── PartyFailed           a party stopped, with a reason
    │   └── PartyLost             a party stopped responding
    │       └── PartyAway             its connection broke; it may reconnect
    ├── MemberFailed          a member's process on this machine has failed, by its own last words
    ├── BudgetSpent           no fault: the privacy budget is spent
    ├── TrainingDiverged      numbers of the training grew beyond what a float holds
    └── EnvironmentFault      machine or network: a port in use, a server that never starts

An error is one line that names the fault and its place, plus a hint with the remedy.
The command line prints both and exits with the class's `exit_code`; a traceback is shown
only with `--debug`.

Other members receive less. A message may quote a cell, a key or a path of the machine, so only `declared(error)`
leaves the process: the text that the error declares fit for others, or the type alone of an unforeseen error.
"""

from __future__ import annotations

import datetime
import difflib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import ClassVar, Self

from colonnade.common.text import escaped

_LONGEST = 4000  # characters of a message, which may quote text from other members


class ColonnadeError(Exception):
    """Base class: the fault (`str(error)`) and its remedy (`error.hint`), both without control characters.

    Args:
        shared: text that other members may read; "" for the text of its class, which names nothing private.
    """

    exit_code = 1
    telling: ClassVar[str | None] = "it has failed"
    """Text that other members may read of an error of this class; None for its message, which then never quotes data,
    and its hint."""
    named = False
    """True if the message begins with the member that it happened to."""

    def __init__(self, message: str, *, hint: str = "", shared: str = "") -> None:
        super().__init__(escaped(message, _LONGEST))
        self.hint = escaped(hint, _LONGEST)
        said = shared or (message if self.telling is None else self.telling)
        self.shared = escaped(" ".join(said.split()), _LONGEST)

    def of(self, member: str) -> Self:
        """The same error, as one that happened to a member."""
        named = type(self)(f"{member}: {self}", hint=self.hint, shared=self.shared)
        named.named = True
        return named


class InputError(ColonnadeError):
    """Our own input is wrong. The message may quote it, and is not sent to other members."""

    exit_code = 2
    telling = "it cannot go on with its own configuration or folder"


class ConfigError(InputError):
    """A key or a value of the configuration is not allowed."""


class DataError(InputError):
    """A table, a column, a label or a path is not usable."""

    telling = "it cannot go on with its own data"


class IdentityError(InputError):
    """A key, a certificate or a revocation list is not usable."""

    telling = "it cannot use its own keys, certificates or revocation list"


class CheckpointError(InputError):
    """A checkpoint is damaged, or of another run, member or configuration."""

    telling = "it cannot go on from its own checkpoints or folder"


class PeerError(ColonnadeError):
    """The other end of the conversation is at fault."""

    exit_code = 3
    telling: ClassVar[str | None] = "another member has broken the agreement"


class ContractError(PeerError):
    """A message breaks the contract of its protocol. Kinds, shapes and counts are named, never values.

    Args:
        party: its sender.
        kind: the message's kind, as its contract names it.
        field: the field at fault, or "" for the whole message.
        expected: what the contract allows.
    """

    telling = None

    def __init__(self, party: str, kind: str, field: str, expected: str, got: str) -> None:
        where = f"{kind}.{field}" if field else kind
        super().__init__(f"{party} sent {where}: expected {expected}, got {got}")
        self.party, self.kind, self.field = party, kind, field
        self.expected, self.got = expected, got


class FloodError(ContractError):
    """A peer sends so many useless messages that others have to wait: it is cut off for the session."""


class RefusedError(PeerError):
    """The other end refused us, or we refuse it with a reason."""

    telling = None


_OF_ITSELF = ("was lost:", "was cut off:", "failed:", "sent")  # after a name: a reason that says already whose it is


class PartyFailed(PeerError):
    """A party stopped with an error of its own, or was given up, for the reason that the message quotes."""

    telling = None

    def __init__(self, party: str, reason: str, *, hint: str = "") -> None:
        about = tuple(f"{name} {verb} " for name in (party, repr(party)) for verb in _OF_ITSELF)
        said = reason if reason.startswith(about) else f"{party} failed: {reason.removeprefix(f'{party}: ')}"
        super().__init__(said, hint=hint, shared=reason)  # unchanged, as the party reported it
        self.party, self.reason = party, escaped(reason, _LONGEST)


class PartyLost(PeerError):
    """A party did not respond in time, or was disconnected for too long."""

    telling: ClassVar[str | None] = None

    def __init__(self, party: str, what: str, *, hint: str = "") -> None:
        super().__init__(f"{party} was lost: {what}", hint=hint)
        self.party = party


class PartyAway(PartyLost):
    """The connection broke. The party may reconnect, and the run may wait for it.

    The transport's own message may name addresses, and is not sent to other members.
    """

    telling = "its connection broke"


class MemberFailed(ColonnadeError):
    """A member's process, started by this one, has failed; its own message and hint.

    Args:
        member: its name, or `server`.
        reason: its last error.
    """

    def __init__(self, member: str, reason: str, exit_code: int = 1, *, hint: str = "") -> None:
        reason = reason.removeprefix(f"{member}: ")
        super().__init__(f"{member}: {reason}", hint=hint)
        self.member, self.reason, self.exit_code = member, escaped(reason, _LONGEST), exit_code


class BudgetSpent(ColonnadeError):
    """A party's privacy budget allows no further release."""

    exit_code = 5
    telling = None


DIVERGED = "training has diverged"  # beginning of the text about a divergence that other members read


class TrainingDiverged(ColonnadeError):
    """Training has diverged: a number of a message, the loss or a model is not finite, or the loss grew without end.

    Args:
        member: the member whose numbers grew first, or `server`.
        reason: what grew, and since when.
        round: the round in which it was found.
        members: all members whose numbers grew in the same round; empty for `member` alone.
        shared: text that other members may read.

    Attributes:
        advice: the remedy, for all members.
        sound: round of the newest checkpoint from before the growth; 0 if there is none.
    """

    exit_code = 6
    telling: ClassVar[str | None] = "its numbers are not finite any more"

    def __init__(
        self, member: str, reason: str, round: int = 0, *, members: tuple[str, ...] = (), shared: str = ""
    ) -> None:
        super().__init__(f"{member} {reason}", shared=shared)
        self.round, self.advice, self.sound = round, "", 0
        self.member, self.reason, self.members = member, escaped(reason, _LONGEST), members or (member,)


class EnvironmentFault(ColonnadeError):
    """The machine or the network is at fault. The message may name paths and addresses."""

    exit_code = 4
    telling = "its machine or its network is at fault"


@contextmanager
def disk_faults(what: str, hint: str, more: str = "") -> Iterator[None]:
    """Raises an OSError of the block as EnvironmentFault: what failed, the reason, and more."""
    try:
        yield
    except OSError as failed:
        raise EnvironmentFault(f"{what}: {failed.strerror or failed}{more}", hint=hint) from failed


_AT_HOME = "its own log says more"


def declared(error: BaseException) -> tuple[str, str]:
    """Returns the text that other members may read of an error, in one line, and its hint.

    No other part of an error is sent in a message: its text may quote data, a key or a path.
    """
    if not isinstance(error, ColonnadeError):
        return f"an unforeseen error ({_type_name(error)})", _AT_HOME
    if isinstance(error, TrainingDiverged):
        return error.shared, error.advice
    return error.shared, error.hint if error.telling is None else _AT_HOME


def remedy(error: BaseException) -> str:
    """The remedy of an error, for the member that it happened to; "" if unknown."""
    if isinstance(error, ColonnadeError):
        return error.hint or (error.advice if isinstance(error, TrainingDiverged) else "")
    return "this is a fault of Colonnade: --debug shows where"


def _type_name(error: BaseException) -> str:
    """Name of the nearest built-in class: any other class name is text from its author."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggests the nearest known word: " (did you mean 'rho'?)", or "" if none is near."""
    names = list(known)
    form = unicodedata.normalize("NFC", word)
    if other := next((name for name in names if name != word and unicodedata.normalize("NFC", name) == form), ""):
        return f" (it has {other!a}, which looks the same in another Unicode normal form; this is {word!a})"
    alike = [name for name in names if name.strip().casefold() == word.strip().casefold()]
    close = alike or difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: object) -> str:
    """` = VALUE` for a scalar of a file, "" for a value that takes several lines."""
    if value is not None and not isinstance(value, str | int | float | datetime.date | PurePath):
        return ""
    words = {None: "nothing", True: "true", False: "false"}
    plain = str if isinstance(value, datetime.date) else repr
    text = words[value] if value is None or isinstance(value, bool) else plain(value)
    return f" = {text if len(text) <= 80 else text[:77] + '...'}"
