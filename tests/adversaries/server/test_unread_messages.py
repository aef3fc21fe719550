"""A sender that does not wait and a receiver that does not read: neither fills the other end's memory.

Bounds: messages (server, party).
"""

from __future__ import annotations

import asyncio

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.capacity import AHEAD
from colonnade.common.errors import ContractError, PartyAway
from colonnade.common.protocols.split import CONTRACT, Embedding, Evaluation, Gradient
from tests.common.conversation.transports import Transport, both

pytestmark = pytest.mark.slow

LIMITS = {"rows": 512, "width": 512}  # a megabyte
MEGABYTE = 1 << 20
MANY = 80  # messages: beyond what both ends and the line between them hold


def embedding(round: int) -> Embedding:
    return Embedding(round, torch.full((512, 512), float(round)))


def conversation(transport: Transport):
    return transport.join(["ada"], CONTRACT.kinds, CONTRACT.kinds, LIMITS, LIMITS)


@both
async def test_a_message_of_a_round_far_ahead_breaks_the_contract(transport: Transport) -> None:
    async with conversation(transport) as wired:
        wired.clients["ada"].open(5)
        for _ in range(30):
            await wired.servers["ada"].send(Embedding(2**31, torch.ones(1, 1)))
        with pytest.raises(ContractError, match=f"ada sent Embedding.round: expected at most {5 + AHEAD}, got 2147483"):
            await wired.clients.collect(Embedding, 5, Quorum(limit=5))
        assert wired.mailbox.held("ada") == 0


@both
async def test_a_party_that_sends_ahead_waits_until_the_server_reads(transport: Transport) -> None:
    async with conversation(transport) as wired:
        server, party = wired.clients["ada"], wired.servers["ada"]
        server.open(MANY)
        sent = 0

        async def send() -> None:
            nonlocal sent
            for round in range(1, MANY + 1):
                await party.send(embedding(round))
                sent = round

        sending = asyncio.create_task(send())
        while True:  # until nothing moves any more
            before = sent, wired.mailbox.held("ada")
            await asyncio.sleep(0.5)
            if before == (sent, wired.mailbox.held("ada")):
                break
        assert not sending.done() and sent < 3 * MANY / 4  # the rest is in buffers of gRPC and the kernel
        assert wired.mailbox.held("ada") <= 7 * MEGABYTE
        for round in range(1, MANY + 1):
            got = await server.recv(Embedding, round)
            assert got is not None and got.h[0, 0] == round
        await sending


@both
async def test_a_party_that_does_not_read_is_sent_only_the_newest_round(transport: Transport) -> None:
    async with conversation(transport) as wired:
        server, party = wired.clients["ada"], wired.servers["ada"]
        for round in range(1, MANY + 1):
            server.open(round)
            await server.send(Gradient(round, torch.full((512, 512), float(round))))
            await asyncio.sleep(0.005)
        rounds = party.rounds()
        while (newest := await anext(rounds)) < MANY:
            pass
        got = await party.recv(Gradient, newest)
        assert got is not None and got.dh[0, 0] == MANY
        assert sum(party.mailbox.late.values()) < MANY / 2


@both
async def test_a_party_that_does_not_read_messages_of_one_round_is_dropped(transport: Transport) -> None:
    async with conversation(transport) as wired:
        server = wired.clients["ada"]
        server.open(1)
        with pytest.raises(PartyAway, match=r"ada was lost: it does not read: \d+ bytes wait for it"):
            for _ in range(MANY):
                await server.send(Gradient(1, torch.ones(512, 512)))
                await asyncio.sleep(0.005)


@both
async def test_unread_messages_do_not_block_awaited_ones(transport: Transport) -> None:
    """A straggler's messages of rounds that have passed fill its share; the awaited one comes after them."""

    async with conversation(transport) as wired:
        server, party = wired.clients["ada"], wired.servers["ada"]
        server.open(20)

        async def send() -> None:
            for round in range(1, 20):
                await party.send(Evaluation(round, "test", 0, torch.ones(512, 512)))  # of a kind that is not awaited
            await party.send(embedding(20))

        sending = asyncio.create_task(send())
        responses = await wired.clients.collect(Embedding, 20, Quorum(limit=20))
        assert list(responses) == ["ada"]
        await sending
