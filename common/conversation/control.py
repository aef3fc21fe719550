"""Control messages of a conversation: opening rounds, closing, checkpoints, and statements of parties."""

from __future__ import annotations

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
    """In both directions: what a party was told and received, for every other party; the server passes it on unread.

    Args:
        party: the author; set by the server from the connection.
        body: client/transcript/statement.py.
        certificate: the party's, PEM; empty on loopback without TLS.
        signature: over party and body; empty likewise.
    """

    party: str = ""
    body: bytes = b""
    certificate: bytes = b""
    signature: bytes = b""


Control = Open | Close | Save | Statement
Item = Message | Control
