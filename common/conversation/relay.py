"""Relay of the parties' statements by the server, beside the rounds.

Statements that have arrived go out together, the same to every party: n frames for n parties instead of n².
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from colonnade.common.conversation.parcels import Relayed, Statement
from colonnade.common.errors import ContractError

LARGEST = 49152  # maximum bytes of a statement's body

_SIGNED = 8192  # bytes of a certificate and a signature
_FRAME = 60_000  # bytes of statements that go out together, unless one is larger
_ENTRY = 24  # bytes of a statement in a frame, besides its content
_AHEAD = 16  # statements of a party beyond two a round
_GATHER = 0.05  # seconds that a statement waits for the other parties', unless a round is opened before


class ServerEnd(Protocol):
    """A link of the server."""

    known: int

    @property
    def lost(self) -> bool:
        """True if the peer is gone."""

    def pass_on(self, relayed: Relayed) -> None:
        """Sends statements, unless the peer is lost."""

    def lose(self, error: Exception) -> None:
        """Marks the peer as lost, with the reason."""


class Relay:
    """Collects statements, and sends them to all parties in order of arrival."""

    def __init__(self, links: Mapping[str, ServerEnd]) -> None:
        self._links, self._stopped = links, False
        self._begun, self._count = {party: link.known for party, link in links.items()}, dict.fromkeys(links, 0)
        self._waiting: list[Statement] = []
        self._silent = set(links)  # parties of which no statement waits
        self._timer: asyncio.TimerHandle | None = None

    def take(self, party: str, statement: Statement) -> None:
        """Takes a party's statement. A party that sends too many, or too large ones, is lost."""
        own = self._links[party]
        self._count[party] += 1
        most, signed = _AHEAD + 2 * max(own.known - self._begun[party], 0), statement.certificate + statement.signature
        if self._count[party] > most or len(statement.body) > LARGEST or len(signed) > _SIGNED:
            got = f"{self._count[party]} of them, this one of {len(statement.body)} bytes"
            got += f", signed with {len(signed)}" if len(signed) > _SIGNED else ""
            expected = f"at most {most} so far, of at most {LARGEST} bytes"
            own.lose(ContractError(party, "Statement", "", expected, got))
            return
        self._waiting.append(replace(statement, party=party))
        self._silent.discard(party)
        if all(self._links[each].lost for each in self._silent):
            self.pass_on()
        elif self._timer is None and not self._stopped:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self.pass_on)

    def pass_on(self) -> None:
        """Sends the collected statements."""
        if self._timer is not None:
            self._timer.cancel()
        if not self._waiting:
            return
        waiting, self._waiting, self._timer, self._silent = self._waiting, [], None, set(self._links)
        if not self._stopped:
            for together in _frames(waiting):
                relayed = Relayed.of(together)
                for link in self._links.values():
                    link.pass_on(relayed)

    def stop(self) -> None:
        """Stops relaying: the session is over."""
        self._stopped = True
        self.pass_on()


def _frames(statements: Iterable[Statement]) -> Iterator[list[Statement]]:
    together, bodies, size = list[Statement](), set[bytes](), 0
    for each in statements:
        own = len(each.party.encode()) + len(each.certificate) + len(each.signature) + _ENTRY
        added = own + (0 if each.body in bodies else len(each.body))
        if together and size + added > _FRAME:
            yield together
            together, bodies, size, added = [], set(), 0, own + len(each.body)
        together.append(each)
        bodies.add(each.body)
        size += added
    if together:
        yield together
