"""A party that says farewell before the last round, or sends what only the server sends: it is cut off, by name.

Bounds: checkpoints, sessions (party).
"""

from __future__ import annotations

import asyncio

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.parcels import Begin, Close, Farewell, Open, Parcel, Refusal, Rewind, Save, Welcome
from colonnade.common.errors import ContractError, RefusedError
from colonnade.common.protocols.split import Embedding, Gradient
from tests.server.stage import close, hello, in_session, stage

SERVERS: list[Parcel] = [
    Welcome(), Refusal("x"), Begin(9, ("ada", "bob"), "a-run"), Rewind("x"), Open(2), Close(), Save(1),
]  # fmt: skip


async def test_a_farewell_in_a_round_cuts_the_party_off_at_once() -> None:
    """The server does not wait for it as long as a slow party may take, nor take it for present."""

    there, ada, _bob = await in_session()
    ada.arrive(Farewell())
    with pytest.raises(RefusedError, match="'ada' was cut off: it sent Farewell out of turn"):
        await there.cohort.collect(Embedding, 1, Quorum(limit=60))
    assert asyncio.get_running_loop().time() < 1 and there.gone == ["ada"] and list(there.hub.members) == ["bob"]


async def test_a_farewell_after_the_close_is_the_end() -> None:
    there = stage()
    ada, _bob = await there.join("ada", "bob")
    close(await there.assemble(1))
    ada.arrive(Farewell())
    assert not there.logged("refused") and there.hub.members["ada"].parted.is_set()


@pytest.mark.parametrize("parcel", SERVERS, ids=lambda parcel: type(parcel).__name__)
@pytest.mark.parametrize("begun", [False, True], ids=["before Begin", "in a session"])
async def test_a_notice_of_the_server_is_refused_by_name(parcel: Parcel, *, begun: bool) -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    if begun:
        await there.assemble(1)
    ada.arrive(parcel)
    await asyncio.wait_for(ada.closed.wait(), 1)
    assert there.logged("refused") == [{"party": "ada", "reason": f"it sent {type(parcel).__name__} out of turn"}]
    assert not bob.closed.is_set()


async def test_a_message_of_the_server_is_refused_by_name() -> None:
    there, ada, _bob = await in_session()
    ada.arrive(Gradient(1, torch.zeros(2, 4)))
    wrong = r"^ada sent Gradient: expected one of Embedding, Evaluation, got a message of the server$"
    with pytest.raises(ContractError, match=wrong):
        await there.cohort.collect(Embedding, 1, Quorum(limit=60))
    assert there.cohort["ada"].mailbox.unread("ada") == 0


async def test_a_farewell_that_crosses_with_a_rewind_is_no_end() -> None:
    """The party hears of the rewind after it has said farewell, and says Hello again: it is waited for."""

    there = stage()
    ada, bob = await there.join("ada", "bob")
    close(await there.assemble(1))
    there.hub.rewind("again")
    ada.arrive(Farewell())
    for party, name in ((ada, "ada"), (bob, "bob")):
        party.arrive(hello(name))
    await there.assemble(1)
    assert there.hub.whole and isinstance(ada.last, Begin)
