"""A stream of parcels between a party and the server, as membership uses it over every transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from colonnade.common.conversation.capacity import Capacity, Unlimited
from colonnade.common.conversation.parcels import Hello, Parcel
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
    """Bytes of gRPC messages with their 5-byte prefix, before HTTP/2 and TLS, of one or several connections."""

    received: int = 0
    sent: int = 0


class MessageWatch(Protocol):
    """Observes the messages of a link."""

    def sent(self, party: str, message: Message) -> None:
        """Observes a message before it leaves. Raises an error to refuse it."""

    def received(self, party: str, message: Message) -> None:
        """Observes a valid message. Raises an error if one of its numbers is not finite."""


class Inlet(Capacity, Protocol):
    """Receiver of parcels: while it is full the stream is not read, so that flow control reaches the sender."""

    def expects(self, kind: str, round: int) -> bool:
        """True if a message is wanted; if not, its tensors are not decoded."""


class Everything(Unlimited):
    """Accepts everything."""

    def expects(self, _kind: str, _round: int) -> bool:
        """True."""
        return True


class Stream(Protocol):
    """One end. Nothing is read before `hello` or `attach` is called.

    Attributes:
        peer: the other end's name, for errors.
        address: the peer's, at the server.
        session: number of the current session; other sessions' parcels are dropped.
        done: set when the stream has ended, by either end.
    """

    peer: str
    address: str
    session: int
    done: asyncio.Event

    @property
    def outlet(self) -> Capacity:
        """Capacity for what is posted here."""

    @property
    def unsent(self) -> int:
        """Number of parcels that wait to be sent."""

    async def hello(self) -> Hello:
        """Reads the first parcel. Raises ContractError if it is no Hello, PartyAway if the stream has ended."""

    def attach(
        self, receive: Callable[[Parcel], None], lost: Callable[[Exception], None], inlet: Inlet | None = None
    ) -> None:
        """Sets the receiver of parcels, the callback at the end of the stream, and the signal of free room."""

    def post(self, parcel: Parcel) -> None:
        """Sends a parcel; it is encoded or copied before this returns."""

    def count_in(self, total: WireBytes) -> None:
        """Adds past and future bytes to a total, which outlives the stream."""

    async def close(self) -> None:
        """Sends the rest and ends the stream."""
