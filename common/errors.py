"""Every error that Colonnade raises on purpose, and whose fault it is.

    ColonnadeError
    ├── InputError            ours: a file, a value, a column; mend it and start again
    │   ├── ConfigError           a key or value of the configuration
    │   ├── DataError             a table, a label, a path
    │   ├── IdentityError         a key, a certificate, a revocation list
    │   └── CheckpointError       a checkpoint that is torn, or another's
    ├── PeerError             theirs: the other end of the conversation
    │   ├── ContractError         a message that its protocol does not allow
    │   ├── RefusedError          the other end turned us away and said why
    │   ├── PartyFailed           a party stopped and said why
    │   └── PartyLost             a party fell silent
    │       └── PartyAway             its connection broke: it may come back
    ├── BudgetSpent           nobody's: the privacy budget pays for nothing more
    └── EnvironmentFault      neither: a port in use, a server that never comes

An error is one line that says what is wrong and where, plus a hint that says what to do.
The command line prints both and exits with the class's `exit_code`; a traceback is shown
only with `--debug`.

Other members are told less. A message may quote a cell, a key or a path of the machine, so what leaves the process
is `declared(error)`: the text that the error declares as fit for others, and of an unforeseen error its type alone.
"""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Iterable
from pathlib import PurePath
from typing import ClassVar

from colonnade.common.escaped import escaped

_LONGEST = 4000  # characters of a message, which may quote what others have said


class ColonnadeError(Exception):
    """What is wrong (`str(error)`) and what to do about it (`error.hint`), both without control characters.

    Args:
        told: what other members may read of this error; "" for what its class says, which names nothing private.
    """

    exit_code = 1
    telling: ClassVar[str | None] = "it has failed"
    """What other members may read of an error of this class; None for its message, which then never quotes data,
    and its hint."""

    def __init__(self, message: str, *, hint: str = "", told: str = "") -> None:
        super().__init__(escaped(message, _LONGEST))
        self.hint = escaped(hint, _LONGEST)
        said = told or (message if self.telling is None else self.telling)
        self.told = escaped(" ".join(said.split()), _LONGEST)


class InputError(ColonnadeError):
    """Our own input is wrong. The message may quote it, and stays at home."""

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
    """A checkpoint is torn, or of another run, member or configuration."""

    telling = "it cannot go on from its own checkpoints or folder"


class PeerError(ColonnadeError):
    """The other end of the conversation is at fault."""

    exit_code = 3
    telling: ClassVar[str | None] = "somebody else has broken what was agreed on"


class ContractError(PeerError):
    """A message breaks the contract of its protocol. Kinds, shapes and counts are named, never values.

    Args:
        party: who sent it.
        kind: the message's kind, as its contract names it.
        field: the field at fault, or "" when it is the message as a whole.
        expected: what the contract allows.
        got: what came.
    """

    telling = None

    def __init__(self, party: str, kind: str, field: str, expected: str, got: str) -> None:
        where = f"{kind}.{field}" if field else kind
        super().__init__(f"{party} sent {where}: expected {expected}, got {got}")
        self.party, self.kind, self.field = party, kind, field
        self.expected, self.got = expected, got


class RefusedError(PeerError):
    """The other end turned us away, or we turn it away and say why."""

    telling = None


class PartyFailed(PeerError):
    """A party stopped with an error of its own, quoted in the message."""

    telling = None

    def __init__(self, party: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{party} failed: {reason}", hint=hint, told=reason)  # as it has said it: nobody adds to it
        self.party, self.reason = party, escaped(reason, _LONGEST)


class PartyLost(PeerError):
    """A party did not answer in time, or stayed away for too long."""

    telling: ClassVar[str | None] = None

    def __init__(self, party: str, what: str, *, hint: str = "") -> None:
        super().__init__(f"{party} was lost: {what}", hint=hint)
        self.party = party


class PartyAway(PartyLost):
    """The connection broke. The party may come back, and the run may wait for it.

    The transport's own words may name addresses, and stay at home.
    """

    telling = "its connection broke"


class BudgetSpent(ColonnadeError):
    """A party's privacy budget pays for no further release."""

    exit_code = 5
    telling = None


class EnvironmentFault(ColonnadeError):
    """The machine or the network is at fault. The message may name paths and addresses."""

    exit_code = 4
    telling = "its machine or its network is at fault"


_AT_HOME = "its own log says more"


def declared(error: BaseException) -> tuple[str, str]:
    """What other members may read of an error, in one line, and its hint.

    Nothing else of an error is put into a message: its text may quote data, a key or a path.
    """
    if not isinstance(error, ColonnadeError):
        return f"an unforeseen error ({_type_name(error)})", _AT_HOME
    return error.told, error.hint if error.telling is None else _AT_HOME


def _type_name(error: BaseException) -> str:
    """Of the nearest class that is built in: another's name is the words of whoever wrote it."""
    return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def nearest(word: str, known: Iterable[str]) -> str:
    """Says which known word was probably meant: " (did you mean 'rho'?)", or "" if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def shown(value: object) -> str:
    """` = VALUE` for a scalar of a file, "" for what takes several lines in it."""
    if value is not None and not isinstance(value, str | int | float | datetime.date | PurePath):
        return ""
    words = {None: "nothing", True: "true", False: "false"}
    text = words[value] if value is None or isinstance(value, bool) else repr(value)
    return f" = {text if len(text) <= 80 else text[:77] + '...'}"
