"""Relay of the parties' statements by the server, beside the rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from colonnade.common.conversation.control import Statement
from colonnade.common.errors import ContractError

LARGEST = 49152
"""Maximum bytes of a statement's body."""

_AHEAD = 16  # statements of a party beyond two a round


class Relayed(Protocol):
    """A link of the server."""

    known: int

    def pass_on(self, statement: Statement) -> None:
        """Sends a statement, unless the peer is lost."""

    def lose(self, error: Exception) -> None:
        """Marks the peer as lost, with the reason."""


class Relay:
    """Passes every statement of `party` on to all others, in the order in which they arrive."""

    def __init__(self, party: str, links: Mapping[str, Relayed]) -> None:
        self._party, self._links, self._passed = party, links, 0
        self._begun = links[party].known

    def __call__(self, statement: Statement) -> None:
        """Passes one on. A party that sends too many, or too large ones, is lost."""
        own = self._links[self._party]
        self._passed += 1
        most = _AHEAD + 2 * max(own.known - self._begun, 0)
        if self._passed > most or len(statement.body) > LARGEST:
            got = f"{self._passed} of them, this one of {len(statement.body)} bytes"
            expected = f"at most {most} so far, of at most {LARGEST} bytes"
            own.lose(ContractError(self._party, "Statement", "", expected, got))
            return
        named = replace(statement, party=self._party)
        for party, link in self._links.items():
            if party != self._party:
                link.pass_on(named)
