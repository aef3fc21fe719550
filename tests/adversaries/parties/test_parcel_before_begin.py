"""A party sends a message of the protocol before the server has begun: it is cut off by name, and nobody else is.

Bounds: messages (party).
"""

from __future__ import annotations

import asyncio

import pytest
import torch

from colonnade.common.conversation.parcels import Refusal
from colonnade.common.errors import PartyAway
from colonnade.common.protocols.split import Embedding
from tests.server.stage import in_session, stage

EARLY = "ada sent Embedding: expected nothing before Begin, got round 1"


def embedding() -> Embedding:
    return Embedding(1, torch.ones(2, 2))


async def test_before_the_first_begin() -> None:
    there = stage()
    ada, bob = await there.join("ada", "bob")
    ada.arrive(embedding())
    await asyncio.wait_for(ada.closed.wait(), 1)
    assert isinstance(ada.last, Refusal) and EARLY in ada.last.reason
    assert there.logged("refused") == [{"party": "ada", "reason": EARLY}]
    assert list(there.hub.members) == ["bob"] and not bob.closed.is_set()


async def test_messages_of_a_returned_party_before_begin_do_not_reach_the_server_side() -> None:
    there, ada, _bob = await in_session()
    ada.lose(PartyAway("ada", "the connection was closed"))
    (again,) = await there.join("ada")
    again.arrive(embedding())
    await asyncio.wait_for(again.closed.wait(), 1)
    assert there.logged("refused") == [{"party": "ada", "reason": EARLY}]
    assert there.cohort["ada"].mailbox.unread("ada") == 0


@pytest.mark.parametrize("party", ["ada", "bob"])
async def test_in_the_session_the_same_message_is_heard(party: str) -> None:
    there = stage()
    both = dict(zip(("ada", "bob"), await there.join("ada", "bob"), strict=True))
    cohort = await there.assemble(1)
    both[party].arrive(embedding())
    assert cohort[party].mailbox.unread(party) == 1 and not there.logged("refused")
