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
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ColonnadeError(Exception):
    """What is wrong (`str(error)`) and what to do about it (`error.hint`)."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class InputError(ColonnadeError):
    """Our own input is wrong.

    Attributes:
        told: what other members may read of it. The message itself may quote data, and stays at home.
    """

    exit_code = 2
    told: str = "it cannot go on with its own configuration or folder"


class ConfigError(InputError):
    """A key or a value of the configuration is not allowed."""


class DataError(InputError):
    """A table, a column, a label or a path is not usable.

    Args:
        told: what other members may read of it; "" for no more than that something is wrong with the data.
    """

    def __init__(self, message: str, *, hint: str = "", told: str = "") -> None:
        super().__init__(message, hint=hint)
        self.told = told or "it cannot go on with its own data"


class OwnDataFailed(DataError):
    """A member's own data are of no use. What is wrong with them stays at home: it may quote them."""


class IdentityError(InputError):
    """A key, a certificate or a revocation list is not usable."""


class CheckpointError(InputError):
    """A checkpoint is torn, or of another run, member or configuration."""


class PeerError(ColonnadeError):
    """The other end of the conversation is at fault."""

    exit_code = 3


class ContractError(PeerError):
    """A message breaks the contract of its protocol.

    Args:
        party: who sent it.
        kind: the message's kind, as its contract names it.
        field: the field at fault, or "" when it is the message as a whole.
        expected: what the contract allows.
        got: what came.
    """

    def __init__(self, party: str, kind: str, field: str, expected: str, got: str) -> None:
        where = f"{kind}.{field}" if field else kind
        super().__init__(f"{party} sent {where}: expected {expected}, got {got}")
        self.party, self.kind, self.field = party, kind, field
        self.expected, self.got = expected, got


class RefusedError(PeerError):
    """The other end turned us away."""


class PartyFailed(PeerError):
    """A party stopped with an error of its own, quoted in the message."""

    def __init__(self, party: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{party} failed: {reason}", hint=hint)
        self.party, self.reason = party, reason


class PartyLost(PeerError):
    """A party did not answer in time, or stayed away for too long."""

    def __init__(self, party: str, what: str, *, hint: str = "") -> None:
        super().__init__(f"{party} was lost: {what}", hint=hint)
        self.party = party


class PartyAway(PartyLost):
    """The connection broke. The party may come back, and the run may wait for it."""


class BudgetSpent(ColonnadeError):
    """A party's privacy budget pays for no further release."""

    exit_code = 5


class EnvironmentFault(ColonnadeError):
    """The machine or the network is at fault."""

    exit_code = 4


def nearest(word: str, known: Iterable[str]) -> str:
    """Says which known word was probably meant: " (did you mean 'rho'?)", or "" if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""
