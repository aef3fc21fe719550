"""Control messages of a conversation: opening rounds, closing, checkpoints, and statements of parties."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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

    `keep` is the previous one, kept until this is committed; `best` that of the best round so far. `model` is the round
    whose model is the run's once this is committed: this one or the best; 0 is the newest one.
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
        places: of every statement's body among `bodies`.
        certificates, signatures: of every statement.
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
        """The statements in their order. Raises ValueError if there is not one of everything for each."""
        each = zip(self.parties, self.places, self.certificates, self.signatures, strict=True)
        if not all(0 <= place < len(self.bodies) for place in self.places):
            raise ValueError(f"a statement's place among {len(self.bodies)} bodies is none of these")
        return tuple(Statement(party, self.bodies[place], *signed) for party, place, *signed in each)


Control = Open | Close | Save | Statement | Relayed
Item = Message | Control
