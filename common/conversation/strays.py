"""Messages that no round takes, because they come too late, twice or unasked, and how many of them there may be.

A member owes as many messages of a kind in a round as the reader asks it for. Rounds go on without slow members, so
that many of every open round may come too late. Whoever sends more makes everybody wait until they are read.
"""

from __future__ import annotations

from collections import Counter

_SPARE = 64  # messages of a kind in a session, in any case
_OF_SERVER = 64  # at least, a round: of some kinds a server sends a party one for each of the others


class Strays:
    """Counts by sender and kind, in one session."""

    def __init__(self) -> None:
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._begun: dict[tuple[str, str], int] = {}  # rounds before it are over for this kind
        self._asked: dict[tuple[str, str], tuple[int, int]] = {}  # newest round, and questions in it
        self._owed: Counter[str] = Counter()  # most questions in a round, to whomever

    def ask(self, peer: str, kind: str, round: int) -> None:
        """Counts a question to a peer: one message of this kind and round."""
        before, count = self._asked.get((peer, kind), (round, 0))
        count = count + 1 if before == round else 1
        self._asked[peer, kind] = round, count
        self._owed[kind] = max(self._owed[kind], count)
        self.pass_to(peer, kind, round)

    def pass_to(self, peer: str, kind: str, round: int) -> None:
        """Notes that messages of this kind and of rounds before this one will be dropped."""
        self._begun[peer, kind] = max(self._begun.get((peer, kind), 0), round)

    def drop(self, peer: str, kind: str) -> None:
        """Counts a message that was dropped unread."""
        self._dropped[peer, kind] += 1

    def excess(
        self, peer: str, kind: str, round: int, opened: int, unread: int, *, server: bool
    ) -> tuple[int, int] | None:
        """How many came to nothing and how many may, if these are too many: with the next message, not decoded yet.

        Args:
            peer, kind, round: of the next message.
            opened: number of rounds opened so far.
            unread: number of messages of this kind that came before it: of older rounds, if it is of one.
            server: True if the peer is the server.
        """
        came = self._dropped[peer, kind]
        if round < self._begun.get((peer, kind), 0):
            came += unread + 1
        most = _SPARE + max(self._owed[kind], _OF_SERVER if server else 1) * (opened + 1)
        return (came, most) if came > most else None
