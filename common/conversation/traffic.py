"""Counters of the traffic between two ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from colonnade.common.messaging.message import Message, payload_bytes


@dataclass
class Traffic:
    """Traffic of one link: payload bytes (tensors alone) and messages, by kind and direction."""

    sent: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)

    @staticmethod
    def count(book: dict[str, list[int]], message: Message) -> None:
        """Adds one message to `sent` or `received`: kind -> [messages, payload bytes]."""
        entry = book.setdefault(type(message).__name__, [0, 0])
        entry[0] += 1
        entry[1] += payload_bytes(message)


@dataclass
class WireBytes:
    """Bytes of gRPC messages with their 5-byte prefix, before HTTP/2 and TLS, of one connection or of several."""

    received: int = 0
    sent: int = 0


class MessageWatch(Protocol):
    """Sees the messages of a link."""

    def sent(self, party: str, message: Message) -> None:
        """Sees a message before it leaves. Raises an error to refuse it."""

    def received(self, party: str, message: Message) -> None:
        """Sees a message that fits its contract. Raises an error if a number of it is not finite."""
