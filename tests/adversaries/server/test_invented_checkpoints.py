"""A server that asks for checkpoints of rounds that were not, again, or in a way that makes the party drop its own.

Bounds: checkpoints, sessions (server).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from colonnade.common.conversation.parcels import Failure, Hello, Open, Rewind, Save, Saved
from colonnade.common.errors import ContractError
from tests.support.false_server import FalseServer, ServerPuppet, scripted

HOLDS = "expected that of a checkpoint which party1 holds (2, 3)"


async def two_checkpoints(there: FalseServer) -> ServerPuppet:
    """Three rounds, and checkpoints after the second and the third."""
    party, line = await there.begun()
    for number in (1, 2, 3):
        await line.round(number)
        if number > 1:
            await line.checkpoint(number, keep=2 if number == 3 else 0)
    line.send(Open(4))
    line.party = party  # type: ignore[attr-defined]
    return line


@pytest.mark.parametrize(
    ("save", "text"),
    [
        (Save(5, keep=3), "Save.round: expected 4, the newest open round, got 5"),
        (Save(2**31, keep=3), f"Save.round: expected 4, the newest open round, got {2**31}"),
        (Save(3, keep=3), "Save.round: expected 4, the newest open round, got 3"),
        (Save(1), "Save.round: expected 4, the newest open round, got 1"),
        (Save(0), "Save.round: expected 4, the newest open round, got 0"),
        (Save(4), "Save.keep: expected that of a checkpoint, since one was committed in this run, got 0"),
        (Save(4, keep=1), f"Save.keep: {HOLDS}, got 1"),
        (Save(4, keep=4), f"Save.keep: {HOLDS}, got 4"),
        (Save(4, keep=3, best=1), f"Save.best: {HOLDS}, got 1"),
        (Save(4, keep=3, model=3), "Save.model: expected this round's or the best's (4, 0), got 3"),
    ],
    ids=str,
)
async def test_a_checkpoint_that_no_honest_server_asks_for_is_refused_and_nothing_is_lost(
    tmp_path: Path, save: Save, text: str
) -> None:
    with scripted(tmp_path) as there:
        line = await two_checkpoints(there)
        before = there.files()
        assert sum(name.startswith("checkpoints/") for name in before) == 4  # two, of two files each
        line.send(save)
        error = await there.error(line.party)  # type: ignore[attr-defined]
        assert isinstance(error, ContractError) and str(error) == f"server sent {text}"
        assert line.said(Failure)[-1].reason == error.shared
        assert there.files() == before


async def test_the_same_checkpoint_is_not_asked_for_twice(tmp_path: Path) -> None:
    """After the next round was computed: it would be of another state, under the old number."""

    with scripted(tmp_path) as there:
        line = await two_checkpoints(there)
        line.send(Save(4, keep=3))
        await line.hear(Saved)
        before = there.files()
        line.send(Save(4, keep=3))
        error = await there.error(line.party)  # type: ignore[attr-defined]
        assert str(error) == "server sent Save.round: expected an open round, once, got 4"
        assert there.files() == before


@pytest.mark.parametrize("round", [2, 3])
async def test_after_a_rewind_a_checkpoint_is_of_a_new_round(tmp_path: Path, round: int) -> None:
    """Before a round was opened in the session there is nothing to save that is not on the disk."""

    with scripted(tmp_path) as there:
        line = await two_checkpoints(there)
        line.send(Rewind("again"))
        await line.hear(Hello)
        line.begin(round)
        line.send(Save(round, keep=2))
        error = await there.error(line.party)  # type: ignore[attr-defined]
        assert str(error) == f"server sent Save.round: expected an open round, once, got {round}"
