"""What travels beside a protocol's messages: joining, beginning and leaving, opening rounds, checkpoints, statements.

See proto/federation.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from colonnade.common.messaging.message import Message


@dataclass(frozen=True)
class Open:
    """The server opens a round."""

    round: int


@dataclass(frozen=True)
class Close:
    """The server will open no more rounds."""


@dataclass(frozen=True)
class Save:
    """The server asks for a checkpoint of a round.

    `keep` is the previous one, kept until this is committed; `best` the best round's so far. `model` is the round whose
    model is the run's once this is committed: this one or the best; 0 is the newest.
    """

    round: int
    keep: int = 0
    best: int = 0
    model: int = 0


@dataclass(frozen=True)
class Statement:
    """Party to server: what a party was told and received, for every other party; the server passes it on unread.

    Args:
        party: the author, which the server knows from the connection; empty on the wire.
        body: client/transcript/statement.py.
        certificate: the party's, PEM; empty on loopback without TLS.
        signature: over party and body; empty likewise.
    """

    party: str = ""
    body: bytes = b""
    certificate: bytes = b""
    signature: bytes = b""


@dataclass(frozen=True)
class Relayed:
    """Server to party: statements of all parties, each body once.

    Args:
        bodies: different ones.
        parties: the author of every statement.
        places: index in `bodies` of every statement's body.
        certificates, signatures: one of each per statement.
    """

    bodies: tuple[bytes, ...] = ()
    parties: tuple[str, ...] = ()
    places: tuple[int, ...] = ()
    certificates: tuple[bytes, ...] = ()
    signatures: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, statements: Iterable[Statement]) -> Relayed:
        """These statements, in their order."""
        found = tuple(statements)
        place = {body: number for number, body in enumerate(dict.fromkeys(each.body for each in found))}
        return cls(
            tuple(place), tuple(each.party for each in found), tuple(place[each.body] for each in found),
            tuple(each.certificate for each in found), tuple(each.signature for each in found),
        )  # fmt: skip

    def statements(self) -> tuple[Statement, ...]:
        """The statements in their order. Raises ValueError if lengths differ."""
        each = zip(self.parties, self.places, self.certificates, self.signatures, strict=True)
        if not all(0 <= place < len(self.bodies) for place in self.places):
            raise ValueError(f"a statement's place among {len(self.bodies)} bodies is none of these")
        return tuple(Statement(party, self.bodies[place], *signed) for party, place, *signed in each)


Control = Open | Close | Save | Statement | Relayed
Item = Message | Control


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
class Preparing:
    """Party to server, once a session: it encodes a large table, or writes it to its disk, before its next message."""


@dataclass(frozen=True)
class Farewell:
    """The sender's side has finished."""


@dataclass(frozen=True)
class Failure:
    """The sender's side has failed. `party` is the member where the error occurred, not the one that forwards it."""

    party: str
    reason: str
    hint: str = ""


Notice = Hello | Welcome | Refusal | Begin | Rewind | Saved | Spent | Preparing | Farewell | Failure
Parcel = Item | Notice
