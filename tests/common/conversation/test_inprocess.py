"""The virtual clock, and conversations on it."""

from __future__ import annotations

import asyncio

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.inprocess import connect, pair, run_virtual, snapshot
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.conversation.parcels import Farewell, Item, Open, Parcel
from colonnade.common.errors import PartyLost
from colonnade.common.messaging.message import Message
from colonnade.common.protocols.split import CONTRACT, Embedding, Evaluation, Gradient

LIMITS = {"rows": 8, "width": 4}


def embedding(round: int, fill: float = 1.0) -> Embedding:
    return Embedding(round, torch.full((2, 4), fill))


def test_an_hour_of_sleeping_is_not_waited_for() -> None:
    async def main() -> float:
        for _ in range(60):
            await asyncio.sleep(60)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(3600)


def test_a_month_is_no_longer_than_an_hour() -> None:
    async def main() -> float:
        await asyncio.sleep(30 * 86_400)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(30 * 86_400)


def test_timers_fire_by_their_times_and_not_by_their_order() -> None:
    async def main() -> list[int]:
        woken: list[int] = []

        async def sleeper(seconds: int) -> None:
            await asyncio.sleep(seconds)
            woken.append(seconds)

        await asyncio.gather(*(sleeper(seconds) for seconds in (5, 1, 4, 2, 3)))
        return woken

    assert run_virtual(main()) == [1, 2, 3, 4, 5]


def test_every_run_has_a_clock_of_its_own() -> None:
    async def main() -> float:
        await asyncio.sleep(1)
        return asyncio.get_running_loop().time()

    assert [run_virtual(main()) for _ in range(2)] == [1, 1]


def test_a_deadlock_is_an_error_and_no_hang() -> None:
    async def main() -> None:
        _, links = connect(["ada"], CONTRACT.kinds, LIMITS)
        await links["ada"].recv(Gradient, 1)

    with pytest.raises(RuntimeError, match="every coroutine waits for another: nothing is ready and no timer is set"):
        run_virtual(main())


def test_an_error_of_a_protocol_side_is_raised() -> None:
    async def main() -> None:
        await asyncio.sleep(1)
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        run_virtual(main())


async def test_items_of_one_sender_arrive_in_order_although_all_at_once() -> None:
    clients, links = connect(["ada"], CONTRACT.kinds, LIMITS)
    clients["ada"].open(200)
    for n in range(1, 201):
        await links["ada"].send(embedding(n))
    for n in range(1, 201):
        got = await clients["ada"].recv(Embedding, n)
        assert got is not None and got.round == n


async def test_items_of_one_sender_do_not_overtake_each_other() -> None:
    waits = iter([5.0, 1.0, 0.0])
    clients, links = connect(["ada"], CONTRACT.kinds, LIMITS, lambda *_: next(waits))
    for n in (1, 2, 3):
        await links["ada"].send(embedding(n))
    for n in (1, 2, 3):
        assert await clients["ada"].recv(Embedding, n) is not None
    assert asyncio.get_running_loop().time() == pytest.approx(5)


def test_a_farewell_does_not_overtake_an_item_of_the_same_moment() -> None:
    async def main() -> list[Parcel]:
        came: list[Parcel] = []
        at_server, at_party = pair("ada", 64, lambda *_: 0.0)
        at_party.attach(came.append, lambda _loss: None)
        await asyncio.sleep(1)
        for parcel in (Open(1), Farewell()):
            at_server.post(parcel)
        await asyncio.sleep(1)
        return came

    assert run_virtual(main()) == [Open(1), Farewell()]


def test_delayed_items_for_which_there_is_no_room_when_they_arrive_are_not_lost() -> None:
    """A sender sees room as long as items are in transit: a reader that is busy meanwhile has not vanished."""
    large = {"rows": 1 << 14, "width": 8}
    count, rows = 40, torch.ones(1 << 14, 8)

    async def main() -> None:
        clients, links = connect(["ada"], CONTRACT.kinds, large, lambda *_: 1.0)
        clients["ada"].open(1)
        for _ in range(count):
            await links["ada"].send(Embedding(1, rows))
        assert asyncio.get_running_loop().time() < 1  # none had to wait
        await asyncio.sleep(10)
        for _ in range(count):
            assert await clients["ada"].recv(Embedding, 1) is not None

    assert count > 4 * 4  # more than may be unread of one that does not wait
    run_virtual(main())


def test_a_delay_receives_sender_receiver_and_message() -> None:
    asked: list[tuple[str, str, Item]] = []

    def delay(sender: str, receiver: str, item: Item) -> float:
        asked.append((sender, receiver, item))
        return 1.0 if sender == "bob" else 0.0

    async def main() -> None:
        clients, links = connect(["ada", "bob"], CONTRACT.kinds, LIMITS, delay)
        for name in ("ada", "bob"):
            await links[name].send(embedding(1))
        answers = await clients.collect(Embedding, 1, Quorum())
        assert (answers.slowest, answers.lag) == ("bob", pytest.approx(1))
        clients["ada"].open(1)

    run_virtual(main())
    assert [(sender, receiver, type(item)) for sender, receiver, item in asked] == [
        ("ada", "server", Embedding), ("bob", "server", Embedding), ("server", "ada", Open),
    ]  # fmt: skip


async def test_a_grace_ends_on_the_virtual_clock_to_the_second() -> None:
    slow = {"ada": 1.0, "bob": 2.5, "cyd": 60.0}
    clients, links = connect(list(slow), CONTRACT.kinds, LIMITS, lambda sender, *_: slow.get(sender, 0.0))
    for name in slow:
        await links[name].send(embedding(1))
    answers = await clients.collect(Embedding, 1, Quorum(need=1, grace=3))
    assert asyncio.get_running_loop().time() == pytest.approx(4)
    assert list(answers) == ["ada", "bob"] and answers.missing == ("cyd",)


@pytest.mark.parametrize(("seconds", "arrives"), [(59, True), (1199, True), (1201, False)])
async def test_a_party_that_prepares_its_table_has_twenty_times_as_long(seconds: float, arrives: bool) -> None:
    mailbox = Mailbox()
    clients, links = connect(
        ["ada", "bob"], CONTRACT.kinds, LIMITS, lambda sender, *_: seconds if sender == "bob" else 1, mailbox
    )
    mailbox.prepare("bob")
    for name in ("ada", "bob"):
        await links[name].send(embedding(1))
    if not arrives:
        with pytest.raises(PartyLost, match="no Embedding for round 1 within 1200 s"):
            await clients.collect(Embedding, 1, Quorum())
        return
    assert list(await clients.collect(Embedding, 1, Quorum())) == ["ada", "bob"]
    mailbox.prepare("bob")  # a second time gains nothing
    with pytest.raises(PartyLost, match="within 60 s"):
        await clients.collect(Embedding, 2, Quorum())


async def test_rounds_that_go_on_without_a_party_do_not_wait_for_its_table() -> None:
    mailbox = Mailbox()
    clients, links = connect(["ada", "bob"], CONTRACT.kinds, LIMITS, mailbox=mailbox)
    mailbox.prepare("bob")
    await links["ada"].send(embedding(1))
    answers = await clients.collect(Embedding, 1, Quorum(need=1, grace=3))
    assert answers.missing == ("bob",) and asyncio.get_running_loop().time() == pytest.approx(3)


async def test_after_its_preparation_a_party_has_the_usual_time_for_the_awaited_message() -> None:
    mailbox = Mailbox()
    clients, links = connect(
        ["ada"], CONTRACT.kinds, LIMITS, lambda _sender, _to, item: 340 if isinstance(item, Embedding) else 300, mailbox
    )
    mailbox.prepare("ada")
    await links["ada"].send(Evaluation(1, "test", 0, torch.zeros(2, 4)))
    await links["ada"].send(embedding(1))
    assert list(await clients.collect(Embedding, 1, Quorum())) == ["ada"]


def test_one_run_is_like_another() -> None:
    async def main() -> list[tuple[str, float]]:
        clients, links = connect(["ada", "bob", "cyd"], CONTRACT.kinds, LIMITS, lambda who, *_: len(who) / 10)
        for n in range(1, 5):
            for name in links:
                await links[name].send(embedding(n))
        arrivals = clients.arrivals(Embedding)
        return [((await anext(arrivals))[0], asyncio.get_running_loop().time()) for _ in range(12)]

    assert run_virtual(main()) == run_virtual(main())


def test_a_snapshot_shares_no_memory_and_keeps_the_rest() -> None:
    sent = Embedding(7, torch.ones(2, 4, requires_grad=True))
    copy = snapshot(sent)
    assert isinstance(copy, Message) and isinstance(copy, Embedding)
    assert copy.round == 7 and not copy.h.requires_grad
    assert copy.h.data_ptr() != sent.h.data_ptr() and torch.equal(copy.h, sent.h)
    assert snapshot(Open(3)) == Open(3)
