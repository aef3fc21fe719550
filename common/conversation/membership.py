"""Messages around a protocol: join, begin, leave. See proto/federation.proto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from colonnade.common.conversation.control import Item

# Version of the files in proto/: incremented whenever a message changes in a way that older code misreads.
WIRE_VERSION = 10


@dataclass(frozen=True)
class Hello:
    """Party to server, first message. The server compares every field with its own."""

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
    """Server to party: not joined, with the reason. The stream ends."""

    reason: str
    hint: str = ""


@dataclass(frozen=True)
class Begin:
    """Server to party: all parties have joined, in this order; continue after `round`, in the given session.

    Every session has its own number, which enters all values derived for it: keys, nonces, masks. `aligned` is the
    number of the current alignment of rows, if there is one already; `backed_off` the number of times that the run went
    back after a divergence, each time with lower learning rates.
    """

    session: int
    parties: tuple[str, ...] = ()
    run: str = ""
    round: int = 0
    aligned: str = ""
    backed_off: int = 0


@dataclass(frozen=True)
class Rewind:
    """Server to party: stop, and send Hello again. A later Begin names the round to continue from."""

    reason: str = ""


@dataclass(frozen=True)
class Saved:
    """Party to server: the checkpoint of a round is on the disk, or the reason that it is not."""

    round: int
    error: str = ""


@dataclass(frozen=True)
class Spent:
    """Party to server: number of releases paid for so far, for the report's epsilon."""

    releases: float


@dataclass(frozen=True)
class Farewell:
    """The sender's side has finished."""


@dataclass(frozen=True)
class Failure:
    """The sender's side has failed. `party` is the member where the error occurred, not the one that forwards it."""

    party: str
    reason: str
    hint: str = ""


Notice = Hello | Welcome | Refusal | Begin | Rewind | Saved | Spent | Farewell | Failure
Parcel = Item | Notice
