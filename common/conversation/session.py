"""States of a session: which parcels are legal, and when.

`HEARS` and `SAYS` are tables: view -> state -> event -> next state. The view is the server's of one party, or a party's
of the server. An event is a parcel, by the name of its class, `MESSAGE` for every message of a protocol, or `LOST`: the
connection is over. Both ends, in training and in prediction, follow the tables by `SessionState` and keep no flags of
their own. The content of parcels (rounds, checkpoints, sizes) is checked elsewhere.

An event that is not listed is out of turn. Two crossings are legal: parcels sent before Rewind was heard, including the
farewell; and a confirmed checkpoint or a reported budget after everything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message


class View(Enum):
    """The member that observes the other end."""

    SERVER = "server"
    PARTY = "party"


class Stage(Enum):
    """State of a connection."""

    DIALLED = "dialled"  # Hello comes first
    GREETED = "greeted"  # after Hello: it is welcomed or refused
    JOINED = "joined"  # Begin comes when the roster is complete
    RUNNING = "running"  # in a session
    CLOSED = "closed"  # no more rounds
    DONE = "done"  # after the peer's farewell
    STOPPED = "stopped"  # rewound: Hello comes again
    RETURNED = "returned"  # after that Hello: Begin comes next
    OVER = "over"  # failed, refused or lost


MESSAGE: Final = "Message"
LOST: Final = "lost"
FROM_PARTY: Final = frozenset({"Hello", "Saved", "Spent", "Preparing", "Statement"})
FROM_SERVER: Final = frozenset({"Welcome", "Refusal", "Begin", "Rewind", "Open", "Close", "Save", "Relayed"})
FROM_EITHER: Final = frozenset({MESSAGE, "Failure", "Farewell"})

UNNUMBERED: Final = frozenset({"Failure", "Preparing"})
"""Parcels that may bear no session's number within a session: those of a party that has not read its Begin yet."""

PRESENT: Final = frozenset({Stage.JOINED, Stage.RUNNING, Stage.CLOSED, Stage.RETURNED})
TAKING_PART: Final = frozenset({Stage.RUNNING, Stage.CLOSED})
ENDED: Final = frozenset({Stage.DONE, Stage.OVER})
"""States in which the peer's part has ended: what it still sends is dropped, but for what the tables list."""

Table = Mapping[View, Mapping[Stage, Mapping[str, Stage]]]


def _rows(rows: Mapping[Stage, Mapping[Stage, str]]) -> Mapping[Stage, Mapping[str, Stage]]:
    """From state -> next state -> its events, to state -> event -> next state."""
    return {
        state: {event: to for to, events in ways.items() for event in events.split()} for state, ways in rows.items()
    }


_S = Stage
_LATE = "Saved Spent"
_OF_SESSION = "Message Statement Saved Spent Preparing"

HEARS: Table = {
    View.SERVER: _rows({
        _S.DIALLED: {_S.GREETED: "Hello", _S.OVER: "lost"},
        _S.GREETED: {_S.OVER: "lost"},
        _S.JOINED: {_S.JOINED: f"{_LATE} Preparing", _S.OVER: "Failure lost"},
        _S.RUNNING: {_S.RUNNING: _OF_SESSION, _S.OVER: "Failure lost"},
        _S.CLOSED: {_S.CLOSED: _OF_SESSION, _S.DONE: "Farewell", _S.OVER: "Failure lost"},
        _S.DONE: {_S.DONE: _LATE, _S.OVER: "lost"},
        _S.STOPPED: {_S.STOPPED: f"{_OF_SESSION} Farewell", _S.RETURNED: "Hello", _S.OVER: "Failure lost"},
        _S.RETURNED: {_S.RETURNED: _OF_SESSION, _S.OVER: "Failure lost"},
        _S.OVER: {_S.OVER: f"{_LATE} lost"},
    }),
    View.PARTY: _rows({
        _S.DIALLED: {_S.OVER: "Refusal lost"},
        _S.GREETED: {_S.JOINED: "Welcome", _S.OVER: "Refusal Failure lost"},
        _S.JOINED: {_S.RUNNING: "Begin", _S.OVER: "Farewell Refusal Failure lost"},
        _S.RUNNING: {
            _S.RUNNING: "Message Relayed Open Save", _S.CLOSED: "Close", _S.STOPPED: "Rewind",
            _S.OVER: "Farewell Refusal Failure lost",
        },
        _S.CLOSED: {
            _S.CLOSED: "Message Relayed", _S.DONE: "Farewell", _S.STOPPED: "Rewind", _S.OVER: "Refusal Failure lost",
        },
        _S.DONE: {_S.DONE: "Relayed lost"},  # the others' last statements
        _S.STOPPED: {_S.OVER: "Farewell Refusal Failure lost"},
        _S.RETURNED: {_S.RUNNING: "Begin", _S.OVER: "Farewell Refusal Failure lost"},
        _S.OVER: {_S.OVER: "lost"},
    }),
}  # fmt: skip
"""What arrives."""

SAYS: Table = {
    View.SERVER: _rows({
        _S.DIALLED: {_S.OVER: "Refusal"},
        _S.GREETED: {_S.JOINED: "Welcome", _S.OVER: "Refusal"},
        _S.JOINED: {_S.RUNNING: "Begin", _S.JOINED: "Failure", _S.OVER: "Refusal Farewell"},
        _S.RUNNING: {
            _S.RUNNING: "Message Relayed Open Save Failure Farewell", _S.CLOSED: "Close", _S.STOPPED: "Rewind",
            _S.OVER: "Refusal",
        },
        _S.CLOSED: {
            _S.CLOSED: "Message Relayed Failure Farewell", _S.STOPPED: "Rewind", _S.OVER: "Refusal",
        },
        _S.DONE: {_S.DONE: "Message Relayed Failure Farewell", _S.STOPPED: "Rewind", _S.OVER: "Refusal"},
        _S.STOPPED: {_S.STOPPED: "Failure Farewell", _S.OVER: "Refusal"},
        _S.RETURNED: {_S.RUNNING: "Begin", _S.RETURNED: "Failure Farewell", _S.OVER: "Refusal"},
        _S.OVER: {_S.OVER: "Failure Farewell"},
    }),
    View.PARTY: _rows({
        _S.DIALLED: {_S.GREETED: "Hello"},
        _S.GREETED: {},
        _S.JOINED: {_S.JOINED: f"Failure {_LATE} Preparing"},
        _S.RUNNING: {_S.RUNNING: f"{_OF_SESSION} Failure"},
        _S.CLOSED: {_S.CLOSED: f"{_OF_SESSION} Failure Farewell"},
        _S.DONE: {_S.DONE: f"{_OF_SESSION} Failure Farewell"},
        _S.STOPPED: {_S.STOPPED: f"{_OF_SESSION} Failure", _S.RETURNED: "Hello"},
        _S.RETURNED: {_S.RETURNED: f"Failure {_LATE}"},
        _S.OVER: {_S.OVER: f"Failure {_LATE}"},
    }),
}  # fmt: skip
"""What this member itself sends."""


def event_of(parcel: object) -> str:
    """The event of a parcel, or of the error with which a connection ended."""
    if isinstance(parcel, Exception):
        return LOST
    return MESSAGE if isinstance(parcel, Message) else type(parcel).__name__


class SessionState:
    """Follows the tables over one connection."""

    def __init__(self, view: View, state: Stage = Stage.DIALLED) -> None:
        self.view, self.state = view, state

    def hear(self, heard: object) -> bool:
        """Handles an arrived parcel. Returns False if it is to be dropped because the peer's part has ended.

        Raises ContractError if it is out of turn.
        """
        after = HEARS[self.view][self.state].get(event_of(heard))
        if after is None and self.state in ENDED:
            return False
        if after is None:
            raise self._out_of_turn(type(heard).__name__)
        self.state = after
        return True

    def say(self, said: object) -> bool:
        """Notes what this member sends. Returns False, and changes nothing, if it may not send that now."""
        after = SAYS[self.view][self.state].get(event_of(said))
        self.state = after or self.state
        return after is not None

    def end(self) -> None:
        """Ends the session for this member; everything that arrives is dropped."""
        self.state = Stage.OVER

    def _out_of_turn(self, kind: str) -> ContractError:
        at_server = self.view is View.SERVER
        peer, wrong = ("a party", FROM_SERVER) if at_server else ("server", FROM_PARTY)
        sent = "the server sends" if at_server else "parties send"
        got = f"a message that {sent}" if kind in wrong else "it out of turn"
        return ContractError(peer, kind, "", _EXPECTED[self.state], got)


_EXPECTED = {
    Stage.DIALLED: "Hello",
    Stage.GREETED: "Welcome",
    Stage.JOINED: "Begin or Farewell",
    Stage.RUNNING: "what belongs to a session",
    Stage.CLOSED: "nothing more after Close",
    Stage.STOPPED: "Hello",
    Stage.RETURNED: "Begin or Farewell",
}
