"""A scripted server sends a party one kind of parcel without end: the party names it, having read a bounded part.

Bounds: messages (server).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from colonnade.client.member import sessions
from colonnade.common.conversation.parcels import Begin, Hello, Open, Parcel, Relayed, Rewind, Save, Statement, Welcome
from colonnade.common.errors import ContractError
from colonnade.common.protocols.split import Embedding
from colonnade.common.wire import connection
from colonnade.common.wire.frame import pack
from tests.support.false_server import ServerPuppet, gradient, scripted

MANY = 6000  # more than any bound

FLOODS: dict[str, tuple[Callable[[ServerPuppet], Parcel | bytes], str]] = {
    "rounds": (lambda line: Open(2), "server sent Open.round: expected more than 2"),
    "checkpoints": (lambda line: Save(2), "server sent Save.round: expected"),
    "rewinds": (lambda line: Rewind("again"), "server sent Rewind: expected Begin or Farewell, got it out of turn"),
    "welcomes": (lambda line: Welcome(), "server sent Welcome: expected"),
    "sessions": (lambda line: Begin(9, run="run1"), "server sent Begin: expected"),
    "statements": (lambda line: Relayed.of([Statement("party2", b"{}")]), "server sent Relayed: expected at most 41"),
    "gradients of the round before": (lambda line: gradient(1), "server sent Gradient: expected at most 256 that are"),
    "empty frames": (lambda line: b"", "server sent a frame: expected at most 4096 frames that are empty"),
    "frames of another session": (
        lambda line: pack(gradient(2), 77, line.codec), "server sent a frame: expected at most 4096 frames that are",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "said"), FLOODS.values(), ids=FLOODS)
async def test_ends_the_party_with_its_name(
    tmp_path: Path, make: Callable[[ServerPuppet], Parcel | bytes], said: str
) -> None:
    with scripted(tmp_path) as server:
        party, line = await server.begun()
        await line.round(1)
        line.send(Open(2))
        await line.hear(Embedding)
        one = make(line)
        for _ in range(MANY):
            if isinstance(one, bytes):
                line.send_bytes(one)
            else:
                line.send(one)
        error = await server.error(party)
        assert isinstance(error, ContractError) and said in str(error)


async def test_frames_of_another_session_are_bounded_in_bytes_too(tmp_path: Path) -> None:
    with scripted(tmp_path) as server, patch.object(connection, "IDLE_LARGEST", 1):
        party, line = await server.begun()
        await line.round(1)
        one = pack(Relayed.of([Statement("party2", bytes(40_000))]), 77, line.codec)
        for _ in range(100):
            line.send_bytes(one)
        assert "or of another session, got more than 1 MB" in str(await server.error(party))


async def test_sessions_without_a_round_end(tmp_path: Path) -> None:
    """Each costs the party lines of its ledger."""
    with scripted(tmp_path) as server, patch.object(sessions, "IDLE_SESSIONS", 12):
        party, line = await server.joined()
        with suppress(EOFError):  # the party hangs up
            for _ in range(20):
                line.begin()
                line.send(Rewind("again"))
                await line.hear(Hello)
        error = await server.error(party)
        assert isinstance(error, ContractError)
        assert str(error) == "server sent Rewind: expected a round in one of 12 sessions, got none"
