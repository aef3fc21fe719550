"""A server that ends, repeats or leaves out what holds a session together: the party ends with an error of it.

Bounds: checkpoints, sessions (server).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from colonnade.common.conversation.parcels import (
    Begin,
    Close,
    Failure,
    Farewell,
    Hello,
    Open,
    Parcel,
    Preparing,
    Relayed,
    Rewind,
    Saved,
    Spent,
    Statement,
    Welcome,
)
from colonnade.common.errors import ContractError, EnvironmentFault, PartyLost
from colonnade.common.protocols.split import Embedding, Evaluation
from tests.support.false_server import scripted
from tests.support.in_memory import ROWS, WIDTH


async def test_an_honest_server_is_followed_to_the_end(tmp_path: Path) -> None:
    """Shows that the scenes below can end well."""

    with scripted(tmp_path) as there:
        party, line = await there.begun()
        await line.finish()
        assert await there.error(party) is None and "end" in there.events


@pytest.mark.parametrize("sent", ["before it answers", "while it waits for its gradient"])
async def test_a_farewell_in_a_round_ends_the_party(tmp_path: Path, sent: str) -> None:
    """The connection stays open: nothing else would ever wake the party."""

    with scripted(tmp_path) as there:
        party, line = await there.begun()
        await line.round(1)
        line.send(Open(2))
        if sent != "before it answers":
            await line.hear(Embedding)
        line.send(Farewell())
        error = await there.error(party)
        assert isinstance(error, PartyLost) and "it ended the run early" in str(error)


async def test_a_close_before_the_last_round_is_not_taken_for_the_end(tmp_path: Path) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.begun()
        await line.round(1)
        line.send(Close(), Farewell())
        error = await there.error(party)
        assert isinstance(error, ContractError)
        assert str(error) == "server sent Close: expected after round 4, as agreed, got it after round 1"
        assert "end" not in there.events


@pytest.mark.parametrize(("stop", "rounds"), [("{drop: 0.1}", 1), ("{patience: 1}", 2)])
async def test_a_run_that_may_stop_early_may_close_early(tmp_path: Path, stop: str, rounds: int) -> None:
    with scripted(tmp_path, f"federation.stop={stop}", "federation.evaluate.every=1") as there:
        party, line = await there.begun()
        for number in range(1, rounds + 1):
            await line.round(number)
        line.send(Close(), Farewell())
        assert await there.error(party) is None


async def test_a_run_does_not_close_before_its_patience_can_have_ended(tmp_path: Path) -> None:
    with scripted(tmp_path, "federation.stop={patience: 1}", "federation.evaluate.every=1") as there:
        party, line = await there.begun()
        await line.round(1)
        line.send(Close(), Farewell())
        error = await there.error(party)
        assert str(error) == "server sent Close: expected after round 2, as agreed, got it after round 1"


@pytest.mark.parametrize("rounds", [0, 2], ids=["at once", "after a rewind"])
async def test_a_farewell_in_the_place_of_begin_is_not_taken_for_the_end(tmp_path: Path, rounds: int) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.joined()
        if rounds:
            line.begin()
            for number in range(1, rounds + 1):
                await line.round(number)
            await line.checkpoint(rounds)
            line.send(Rewind("again"))
            await line.hear(Hello)
        line.send(Farewell())
        error = await there.error(party)
        assert isinstance(error, PartyLost) and "it ended the run early" in str(error)
        assert "end" not in there.events


@pytest.mark.parametrize("absence", ["rollback", "wait"])
async def test_a_party_that_comes_too_late_parts_normally(tmp_path: Path, absence: str) -> None:
    """After the last checkpoint; or in the middle, where the others may wait in vain."""

    with scripted(tmp_path, f"federation.absence={absence}") as there:
        party, line = await there.begun()
        last = 4 if absence == "rollback" else 2
        for number in range(1, last + 1):
            await line.round(number)
        await line.checkpoint(last)
        line.cut()
        again = await there.line()
        await again.welcome()
        again.send(Farewell())
        assert await there.error(party) is None


@pytest.mark.parametrize("then", ["cut", "cut after the Hello"])
async def test_a_connection_that_is_lost_after_a_rewind_is_dialled_again(tmp_path: Path, then: str) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.begun()
        await line.round(1)
        line.send(Rewind("again"))
        if then == "cut":
            await asyncio.sleep(0)
            line.cut()
        else:
            await line.hear(Hello)
            line.cut()
        again = await asyncio.wait_for(there.line(), 60)
        await again.welcome()
        again.begin()
        await again.finish()
        assert await there.error(party) is None


async def test_a_server_that_does_not_come_back_after_a_rewind_ends_the_party(tmp_path: Path) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.begun()
        await line.round(1)
        there.there.up = False
        line.send(Rewind("again"))
        line.cut()
        assert isinstance(await there.error(party), EnvironmentFault)


WELCOMES = {"before Begin": 0, "in a round": 1, "after a rewind": 2}


@pytest.mark.parametrize("when", WELCOMES)
async def test_a_second_welcome_is_refused_by_name(tmp_path: Path, when: str) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.joined()
        if WELCOMES[when]:
            line.begin()
            await line.round(1)
        if WELCOMES[when] == 2:
            line.send(Rewind("again"), *[Welcome()] * 3)
        else:
            line.send(*[Welcome()] * 3)
        error = await there.error(party)
        assert isinstance(error, ContractError) and "server sent Welcome: expected" in str(error)
        assert str(error).endswith("got it out of turn")
        assert [failure.reason for failure in line.said(Failure)] == [error.shared]


WRONG: dict[str, Parcel] = {
    "Hello": Hello("party1", "test", "1"),
    "Saved": Saved(1),
    "Spent": Spent(1.0),
    "Preparing": Preparing(),
    "Embedding": Embedding(1, torch.zeros(ROWS, WIDTH)),
    "Evaluation": Evaluation(1, "validation", 0, torch.zeros(ROWS, WIDTH)),
}


@pytest.mark.parametrize("when", ["before Begin", "in a round"])
@pytest.mark.parametrize("kind", WRONG)
async def test_a_partys_message_from_the_server_is_refused_by_name(tmp_path: Path, kind: str, when: str) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.joined()
        if when == "in a round":
            line.begin()
            await line.round(1)
        line.send(WRONG[kind])
        error = await there.error(party)
        assert isinstance(error, ContractError) and f"server sent {kind}: expected" in str(error)
        assert error.got in ("a message that parties send", "a message of parties", "it out of turn")
        assert line.said(Failure)[-1].reason == error.shared


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((1, 1), "server sent Open.round: expected more than 1, got 1"),
        ((2, 1), "server sent Open.round: expected more than 2, got 1"),
        ((1, 0), "server sent Open.round: expected more than 1, got 0"),
        ((5,), "server sent Open.round: expected at most 4, as agreed, got 5"),
    ],
    ids=["repeated", "going back", "none", "beyond the end"],
)
async def test_a_round_is_opened_once_and_in_order(tmp_path: Path, numbers: tuple[int, ...], text: str) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.begun()
        line.send(*map(Open, numbers))
        assert str(await there.error(party)) == text


RELAYED = Relayed.of([Statement("party2", b"{}")])


@pytest.mark.parametrize("parcel", [Open(5), Close(), Begin(9, run="run1"), RELAYED, Statement()], ids=str)
async def test_after_the_close_only_statements_come(tmp_path: Path, parcel: Parcel) -> None:
    with scripted(tmp_path) as there:
        party, line = await there.begun()
        for number in range(1, 5):
            await line.round(number)
        await line.checkpoint(4)
        before = there.files()
        line.send(Close(), parcel, Farewell())
        error = await there.error(party)
        assert error is None if isinstance(parcel, Relayed) else isinstance(error, ContractError)
        assert there.files() == before
