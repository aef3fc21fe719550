"""What is said around a protocol: joining, beginning, parting. See proto/federation.proto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from colonnade.common.conversation.control import Item

# Of the files in proto/: raised by one whenever a message changes in a way that older code misreads.
WIRE_VERSION = 6


@dataclass(frozen=True)
class Hello:
    """Party to server, first of all. The server compares every field with its own."""

    party: str
    federation: str
    version: str
    wire: int = WIRE_VERSION
    config: Mapping[str, str] = field(default_factory=dict)
    rows: int = 0
    official_test: int = 0
    run: str = ""
    held: tuple[int, ...] = ()
    aligned: str = ""


@dataclass(frozen=True)
class Welcome:
    """Server to party: joined."""


@dataclass(frozen=True)
class Refusal:
    """Not joined, and why. The stream ends."""

    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Begin:
    """Server to party: everyone is here, in this order; go on after `round`, under the session that it gives.

    Every session has another number, which belongs into all that is derived for it: keys, nonces, masks.
    `aligned` is the number of the alignment of rows that counts, if there is one already.
    """

    session: int
    parties: tuple[str, ...] = ()
    run: str = ""
    round: int = 0
    aligned: str = ""


@dataclass(frozen=True)
class Rewind:
    """Server to party: stop, and say Hello again. A later Begin says from which round to go on."""

    reason: str = ""


@dataclass(frozen=True)
class Saved:
    """Party to server: the checkpoint of a round is on the disk, or why it is not."""

    round: int
    error: str = ""


@dataclass(frozen=True)
class Spent:
    """Party to server: how many releases it has paid for so far, for the report's epsilon."""

    releases: float


@dataclass(frozen=True)
class Farewell:
    """The sender's half has come to its end."""


@dataclass(frozen=True)
class Failure:
    """The sender's half has failed. `party` is whose error it is: the root, not who passes it on."""

    party: str
    reason: str
    hint: str = ""


Notice = Hello | Welcome | Refusal | Begin | Rewind | Saved | Spent | Farewell | Failure
Parcel = Item | Notice
