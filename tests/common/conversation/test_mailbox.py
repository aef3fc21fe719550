"""Unread messages, and senders that are gone."""

from __future__ import annotations

import asyncio

import torch

from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ContractError, PartyAway, PartyLost
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.split import Embedding, Gradient

ONE = torch.ones(1, 1)


def test_messages_of_a_peer_and_kind_come_in_order() -> None:
    box, sent = Mailbox(), [Embedding(n, ONE) for n in (1, 2, 3)]
    for message in sent:
        box.put("ada", message)
    box.put("bob", Embedding(1, ONE))
    box.put("ada", Gradient(1, ONE))
    assert [box.take("ada", Embedding) for _ in range(4)] == [*sent, None]
    assert box.take("bob", Gradient) is None


def test_a_named_round_is_waited_for_and_a_later_one_stays() -> None:
    box, early = Mailbox(), Embedding(3, ONE)
    box.put("ada", early)
    assert box.take("ada", Embedding, 2) is None
    assert box.take("ada", Embedding, 3) is early


def test_messages_of_earlier_rounds_are_dropped_counted_and_logged() -> None:
    logged: list[tuple[str, Message]] = []
    box = Mailbox(lambda peer, message: logged.append((peer, message)))
    sent = [Embedding(n, ONE) for n in (1, 2, 3)]
    for message in sent:
        box.put("ada", message)
    assert box.take("ada", Embedding, 3) is sent[2]
    assert box.late == {"ada": 2} and logged == [("ada", sent[0]), ("ada", sent[1])]


def test_late_messages_count_where_nobody_reads_any_more() -> None:
    box = Mailbox()
    assert box.take("ada", Embedding, 2) is None
    for n in (1, 2):
        box.put("ada", Embedding(n, ONE))
    box.abandon()
    for n in (1, 2, 3):
        box.put("ada", Embedding(n, ONE))
    assert box.late == {"ada": 2} and not box.unread("ada") and not box.held("ada")


def test_the_next_of_any_later_round() -> None:
    box, sent = Mailbox(), [Embedding(n, ONE) for n in (1, 2, 4, 3)]
    for message in sent:
        box.put("ada", message)
    assert [box.take_next("ada", Embedding, after=2) for _ in range(3)] == [sent[2], sent[3], None]
    assert box.late == {"ada": 2}


def test_a_second_response_for_a_round_is_late_in_the_next() -> None:
    box = Mailbox()
    for n in (1, 1, 2):
        box.put("ada", Embedding(n, ONE))
    for n in (1, 2):
        assert box.take("ada", Embedding, n) is not None
    assert box.late == {"ada": 1}


def test_the_first_fault_of_a_peer_counts() -> None:
    box, root = Mailbox(), PartyLost("bob", "its connection broke")
    box.fail("bob", root)
    box.fail("bob", PartyLost("bob", "an echo"))
    assert box.fault(["ada"]) is None
    assert box.fault(["ada", "bob"]) is root


def test_mail_that_came_before_a_fault_can_still_be_read() -> None:
    box, sent = Mailbox(), Embedding(1, ONE)
    box.put("ada", sent)
    box.fail("ada", PartyLost("ada", "gone"))
    assert box.take("ada", Embedding, 1) is sent


async def test_every_waiter_is_woken_by_mail_and_by_a_fault() -> None:
    box = Mailbox()
    waiting = [asyncio.create_task(box.change()) for _ in range(3)]
    await asyncio.sleep(0)
    box.put("ada", Embedding(1, ONE))
    assert await asyncio.gather(*waiting) == [True] * 3
    again = asyncio.create_task(box.change(timeout=60))
    await asyncio.sleep(0)
    box.fail("ada", PartyLost("ada", "gone"))
    assert await again and asyncio.get_running_loop().time() == 0


async def test_a_wait_ends_after_its_timeout() -> None:
    box = Mailbox()
    assert not await box.change(timeout=60)
    assert asyncio.get_running_loop().time() == 60
    assert not await box.change(timeout=-1)


async def test_a_cancelled_waiter_is_forgotten() -> None:
    box = Mailbox()
    waiting = asyncio.create_task(box.change(timeout=5))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert not box._bell
    box.ring()


def test_of_several_faults_a_broken_contract_counts_before_a_loss() -> None:
    """Else the run would wait for a member to come back, or name one that is silent, and not the one at fault."""
    mailbox = Mailbox()
    away, broken = PartyAway("ada", "its line broke"), ContractError("bob", "Embedding", "h", "64 rows", "3")
    mailbox.fail("ada", away)
    assert mailbox.fault(["ada", "bob"]) is away and mailbox.fault(["bob"]) is None
    mailbox.fail("bob", broken)
    mailbox.fail("cyd", PartyAway("cyd", "its line broke"))
    assert mailbox.fault(["ada", "bob", "cyd"]) is broken and mailbox.fault(["ada", "cyd"]) is away
