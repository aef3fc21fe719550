"""Control messages of a conversation: opening rounds, closing, and checkpoints."""

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

    `keep` is the previous one, which is kept until this is committed; `best` that of the best round so far.
    """

    round: int
    keep: int = 0
    best: int = 0


Control = Open | Close | Save
Item = Message | Control
