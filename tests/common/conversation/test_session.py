"""The table of a session: every state is reached, every event is legal or refused, and honest ends agree."""

from __future__ import annotations

import random
from collections import deque

import pytest
import torch

from colonnade.common.conversation.parcels import (
    Begin,
    Close,
    Failure,
    Farewell,
    Hello,
    Open,
    Preparing,
    Refusal,
    Relayed,
    Rewind,
    Save,
    Saved,
    Spent,
    Statement,
    Welcome,
)
from colonnade.common.conversation.session import (
    ENDED,
    FROM_EITHER,
    FROM_PARTY,
    FROM_SERVER,
    HEARS,
    SAYS,
    SessionState,
    Stage,
    View,
    event_of,
)
from colonnade.common.errors import ContractError, PartyAway
from colonnade.common.protocols.split import Embedding
from colonnade.common.wire.frame import BODY

PARCELS = (
    Hello("ada", "test", "1"), Welcome(), Refusal("no"), Begin(1), Rewind(), Saved(1), Spent(1.0), Preparing(),
    Farewell(), Failure("", "it has failed"), Open(1), Close(), Save(1), Statement(), Relayed(),
    Embedding(1, torch.zeros(1, 1)),
)  # fmt: skip
LOST = PartyAway("ada", "the connection was closed")
OF_EVENT: dict[str, object] = {event_of(one): one for one in (*PARCELS, LOST)}
PEER = {View.SERVER: View.PARTY, View.PARTY: View.SERVER}
SENDS = {View.SERVER: FROM_SERVER | FROM_EITHER, View.PARTY: FROM_PARTY | FROM_EITHER}


def test_the_table_has_every_state_and_every_parcel_of_the_wire() -> None:
    assert {"Message" if kind == "Letter" else kind for kind in BODY} == FROM_SERVER | FROM_PARTY | FROM_EITHER
    for view in View:
        assert set(HEARS[view]) == set(SAYS[view]) == set(Stage)
        assert {event for row in SAYS[view].values() for event in row} == SENDS[view]
        heard = {event for row in HEARS[view].values() for event in row} - {"lost"}
        assert heard == SENDS[PEER[view]]


@pytest.mark.parametrize("view", View)
@pytest.mark.parametrize("state", Stage)
def test_what_is_not_in_the_table_is_refused_by_both_names(view: View, state: Stage) -> None:
    """The end of a connection is legal always; after the peer's end nothing is refused, and nothing has effect."""
    for event, parcel in OF_EVENT.items():
        session, listed = SessionState(view, state), HEARS[view][state].get(event)
        if listed is None and state not in ENDED and event != "lost":
            with pytest.raises(ContractError, match=f" sent {type(parcel).__name__}: expected "):
                session.hear(parcel)
            assert session.state is state
        elif listed is None and event != "lost":
            assert not session.hear(parcel) and session.state is state
        elif listed is not None:
            assert session.hear(parcel) and session.state is listed


@pytest.mark.parametrize("seed", range(100))
def test_honest_ends_never_refuse_each_other(seed: int) -> None:
    """What each end may say in its own state arrives later, in order, and is legal: whatever crosses on the way."""
    draw = random.Random(seed)
    ends = {view: SessionState(view) for view in View}
    under_way: dict[View, deque[str]] = {view: deque() for view in View}
    for _ in range(80):
        view = draw.choice(list(View))
        said = [
            event
            for event in SAYS[view][ends[view].state]
            if event not in ("Failure", "Refusal") or draw.random() < 0.1
        ]
        if under_way[view] and draw.random() < 0.5:
            ends[view].hear(OF_EVENT[under_way[view].popleft()])
        elif said:
            event = draw.choice(said)
            assert ends[view].say(OF_EVENT[event])
            under_way[PEER[view]].append(event)


def test_every_state_is_reached() -> None:
    for view in View:
        reached = {Stage.DIALLED}
        while True:
            more = {to for table in (HEARS, SAYS) for state in reached for to in table[view][state].values()}
            if more <= reached:
                break
            reached |= more
        assert reached == set(Stage)
