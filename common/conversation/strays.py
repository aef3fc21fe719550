"""Messages that no round takes, because they come too late, twice or unasked, and a bound on their number.

A member owes as many messages of a kind in a round as the reader asks it for. Rounds go on without slow members, so
every open round may bring that many late messages. A member that sends more would make all others wait for its messages
to be read.
"""

from __future__ import annotations

from collections import Counter

_SPARE = 64  # messages of a kind that a session always allows
_OF_SERVER = 64  # minimum per round: a server sends a party some kinds once for each other party


class Strays:
    """Counts by sender and kind, in one session."""

    def __init__(self) -> None:
        self._dropped: Counter[tuple[str, str]] = Counter()
        self._begun: dict[tuple[str, str], int] = {}  # rounds before it are over for this kind
        self._asked: dict[tuple[str, str], tuple[int, int]] = {}  # newest round, and questions in it
        self._owed: Counter[str] = Counter()  # maximum questions in a round, over all peers

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
        """(stray messages, maximum) if the next message, not decoded yet, makes them too many; else None.

        Args:
            round: of the next message.
            opened: number of rounds opened so far.
            unread: number of unread messages of this kind; they are of older rounds if the next message is.
            server: True if the peer is the server.
        """
        came = self._dropped[peer, kind]
        if round < self._begun.get((peer, kind), 0):
            came += unread + 1
        most = _SPARE + max(self._owed[kind], _OF_SERVER if server else 1) * (opened + 1)
        return (came, most) if came > most else None
