"""Parties that go away and come back, on the virtual clock; numbers of sessions only grow."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.parcels import Begin, Failure, Farewell, Hello, Refusal, Rewind, Save, Saved, Welcome
from colonnade.common.errors import CheckpointError, EnvironmentFault, PartyAway, PartyFailed, PartyLost
from colonnade.common.protocols.split import Embedding
from colonnade.server.member.hub import SessionNumbers
from tests.server.stage import FakeConnection, Stage, federation, hello, in_session, stage
from tests.support.patience import PATIENCE

GONE = PartyAway("ada", "the connection was closed")


def holding(*rounds: int, party: str = "ada", agreed: Stage | None = None) -> Hello:
    first = hello(party, agreed.agreed) if agreed else hello(party)
    return replace(first, run="a-run", held=rounds)


def embedding(round: int) -> Embedding:
    return Embedding(round, torch.ones(2, 2))


# The round to resume from.


@pytest.mark.parametrize(
    ("servers", "adas", "bobs", "committed", "restored"),
    [
        ((20, 10), (20, 10), (20, 10), 20, 20),
        ((20, 10), (10,), (20, 10), 20, 10),
        ((20, 10), (30, 20), (20, 10), 10, 20),
        ((), (), (), 0, 0),
        ((10,), (10,), (), 0, 0),
        ((10,), (20,), (30,), 0, 0),
    ],
    ids=["all", "one is torn", "not committed", "none", "one never saved", "nothing in common, nothing committed"],
)
async def test_the_newest_round_that_all_hold_is_restored(
    servers: tuple[int, ...], adas: tuple[int, ...], bobs: tuple[int, ...], committed: int, restored: int
) -> None:
    there = stage()
    ada = await there.come(holding(*adas))
    await there.come(holding(*bobs, party="bob"))
    await there.assemble(1, servers, committed)
    assert there.restored == restored
    assert isinstance(ada.last, Begin) and ada.last.round == restored


async def test_a_committed_checkpoint_that_no_member_holds_complete_ends_the_run() -> None:
    there = stage()
    await there.come(holding(20, 10))
    await there.come(holding(party="bob"))
    with pytest.raises(CheckpointError, match="no checkpoint is whole at all members: bob lack that of round 20"):
        await there.assemble(1, (20, 10), 20)


# Rolling back.


async def test_after_a_rewind_all_parties_send_hello_again_and_a_new_session_begins() -> None:
    there, ada, bob = await in_session()
    first = there.hub.session
    there.hub.rewind("cyd is away")
    assert ada.last == bob.last == Rewind("cyd is away")
    ada.arrive(embedding(1))  # of the session that was stopped
    with pytest.raises(PartyLost, match="ada, bob was lost: did not come back within 1 s"):
        await there.hub.assemble(1)
    for connection, name in ((ada, "ada"), (bob, "bob")):
        connection.arrive(holding(5, party=name))
    cohort = await there.assemble(1, (5,), 5)
    assert there.hub.session != first and there.restored == 5
    assert isinstance(ada.last, Begin) and ada.last.session == there.hub.session == ada.session
    with pytest.raises(PartyLost):
        await cohort.collect(Embedding, 1, Quorum(limit=1))


async def test_a_party_back_before_the_rewind_is_not_sent_stop() -> None:
    there, ada, bob = await in_session()
    ada.lose(GONE)
    again = await there.come(holding(5))
    there.hub.rewind("ada is away")
    assert again.last == Welcome() and bob.last == Rewind("ada is away")
    bob.arrive(holding(5, party="bob"))
    await there.assemble(1, (5,), 5)
    assert isinstance(again.last, Begin) and again.last.round == 5


async def test_a_party_that_said_farewell_is_called_back() -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    (await there.assemble(1))["ada"].close()
    ada.arrive(Farewell())
    there.hub.rewind("bob is away")
    for connection, name in ((ada, "ada"), (bob, "bob")):
        connection.arrive(hello(name))
    cohort = await there.assemble(1)
    ada.arrive(embedding(1))
    assert list(await cohort.collect(Embedding, 1, Quorum(need=1))) == ["ada"]


async def test_a_party_that_differs_after_a_rewind_is_cut_off() -> None:
    there, ada, _bob = await in_session()
    there.hub.rewind("x")
    ada.arrive(replace(hello("ada"), rows=99))
    await asyncio.wait_for(ada.closed.wait(), PATIENCE)
    assert isinstance(ada.last, Refusal) and "'ada' has 99 rows" in ada.last.reason
    assert there.hub.missing() == ["ada", "bob"]


async def begun(absence: str) -> tuple[Stage, FakeConnection, FakeConnection]:
    quorum = {"fastest": 1} if absence == "continue" else "wait"
    agreed = federation(absence=absence, quorum=quorum, timeouts={"away": 5})
    there = stage(agreed)
    ada, bob = await there.join("ada", "bob")
    await there.assemble(1)
    there.hub.round = 7
    return there, ada, bob


async def test_rollback_does_not_go_on_without_a_party_nor_let_it_in_by_the_way() -> None:
    there, ada, _bob = await begun("rollback")
    ada.lose(GONE)
    with pytest.raises(PartyAway, match="ada was lost"):
        await there.cohort.collect(Embedding, 7, Quorum())
    (again,) = await there.join("ada")
    assert again.last == Welcome()
    with pytest.raises(PartyAway, match="ada was lost"):
        await there.hub.gate()
    assert there.logged("saved") == [] and (there.saved, there.gone) == ([], ["ada"])


# Waiting, and going on.


async def test_wait_ends_the_round_without_the_party_and_stands_still_until_it_is_back() -> None:
    there, ada, bob = await begun("wait")
    bob.arrive(embedding(7))
    session = there.hub.session
    collecting = asyncio.create_task(there.cohort.collect(Embedding, 7, Quorum()))
    await asyncio.sleep(1)
    assert not collecting.done()
    ada.lose(GONE)
    answers = await collecting
    assert answers.missing == ("ada",)
    waiting = asyncio.create_task(there.hub.gate())
    await asyncio.sleep(3)
    assert not waiting.done()
    again = await there.come(holding(9, 6, 3, agreed=there))
    await asyncio.wait_for(waiting, PATIENCE)
    assert again.last == Begin(there.hub.session, ("ada", "bob"), "a-run", 6)
    assert again.session == there.hub.session > session == bob.session  # no party takes part in a session twice
    assert there.logged("rejoin") == [{"party": "ada", "round": 7, "restored": 6, "seconds": 3.0}]
    for connection in (again, bob):
        connection.arrive(embedding(8))
    assert len(await there.cohort.collect(Embedding, 8, Quorum())) == 2
    there.hub.rewind("all")
    assert again.last == bob.last == Rewind("all")


@pytest.mark.parametrize("absence", ["wait", "continue"])
async def test_a_party_that_returns_to_a_session_with_keys_rolls_it_back(absence: str) -> None:
    """It has no keys, and the others agreed on theirs with the party's earlier process."""

    there, ada, _bob = await begun(absence)
    there.cohort["ada"].keyed = True
    ada.lose(GONE)
    again = await there.come(holding(9, 6, 3, agreed=there))
    with pytest.raises(PartyAway, match="ada was lost: it is back, and everyone agrees on new keys"):
        await there.hub.gate()
    assert there.logged("rejoin") == [] and not isinstance(again.last, Begin)


async def test_wait_does_not_wait_for_ever() -> None:
    there, ada, _bob = await begun("wait")
    ada.lose(GONE)
    begin = asyncio.get_running_loop().time()
    with pytest.raises(PartyLost, match="ada was lost: stayed away for more than 5 s"):
        await there.hub.gate()
    assert asyncio.get_running_loop().time() - begin == pytest.approx(5, abs=0.1)


async def test_continue_goes_on_under_its_quorum_and_lets_the_party_in_between_two_rounds() -> None:
    there, ada, bob = await begun("continue")
    ada.lose(GONE)
    bob.arrive(embedding(7))
    answers = await there.cohort.collect(Embedding, 7, Quorum(need=1))
    assert answers.missing == ("ada",)
    await there.hub.gate()
    assert not there.hub.whole
    again = await there.come(holding(agreed=there))
    assert again.last == Welcome()
    await there.hub.gate()
    assert again.last == Begin(there.hub.session, ("ada", "bob"), "a-run", 0) and there.hub.whole


async def test_continue_without_its_quorum_raises_as_rollback_does() -> None:
    there, ada, _bob = await begun("continue")
    ada.lose(GONE)
    with pytest.raises(PartyAway):
        await there.cohort.collect(Embedding, 7, Quorum(need=2))


# Words beside a protocol.


async def test_a_partys_saved_round_is_passed_on_and_remembered() -> None:
    there, ada, _bob = await in_session()
    there.hub.request_save(Save(4, 2))
    assert ada.last == Save(4, 2)
    ada.arrive(Saved(4))
    ada.arrive(Saved(6, "no space left"))
    assert there.saved == [("ada", 4, ""), ("ada", 6, "no space left")]
    assert there.hub.members["ada"].hello.held == (4,)


async def test_a_party_that_fails_before_the_first_session_ends_the_waiting() -> None:
    there = stage()
    (ada,) = await there.join("ada")
    assembling = asyncio.create_task(there.hub.assemble(60))
    await asyncio.sleep(1)
    ada.arrive(Failure("", "no such column"))
    with pytest.raises(PartyFailed, match="ada failed: no such column"):
        await assembling


def test_they_are_seconds_and_grow_within_one(tmp_path: Path) -> None:
    numbers = SessionNumbers(tmp_path, lambda: 1000.5)
    assert [numbers.after(0), numbers.after(0), numbers.after(1001), numbers.after(5000)] == [1000, 1001, 1002, 5001]


@pytest.mark.parametrize("clock", [10.0, 1000.0])
def test_a_restart_goes_on_although_the_clock_goes_back(tmp_path: Path, clock: float) -> None:
    assert SessionNumbers(tmp_path, lambda: 1000.0).after(0) == 1000
    assert SessionNumbers(tmp_path, lambda: clock).after(0) == 1001


@pytest.mark.parametrize("content", [None, b"", b"x", b"\xff"])
def test_a_lost_file_leaves_the_clock(tmp_path: Path, content: bytes | None) -> None:
    assert SessionNumbers(tmp_path, lambda: 1000.0).after(0) == 1000
    (tmp_path / "session").unlink()
    if content is not None:
        (tmp_path / "session").write_bytes(content)
    assert SessionNumbers(tmp_path, lambda: 1002.0).after(0) == 1002


def test_a_disk_that_refuses_it_begins_no_session(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="session cannot be written"):
        SessionNumbers(tmp_path / "missing").after(0)
