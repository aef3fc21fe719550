"""The conformance suite of transports."""

from __future__ import annotations

import asyncio
import math

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.parcels import Save
from colonnade.common.errors import ContractError, PartyLost
from colonnade.common.protocols.split import CONTRACT, Embedding, Evaluation, Gradient
from tests.common.conversation.transports import Transport, Wired, both
from tests.support.altered_lines import bypass

LIMITS = {"rows": 8, "width": 4}
PARTIES = ["ada", "bob", "cyd"]


def embedding(round: int, rows: int = 2, fill: float = 1.0) -> Embedding:
    return Embedding(round, torch.full((rows, 4), float(fill)))


def conversation(transport: Transport, *, parties=PARTIES, ours=CONTRACT.kinds, wide=LIMITS):
    return transport.join(parties, CONTRACT.kinds, ours, wide, LIMITS)


@both
async def test_messages_of_a_kind_arrive_in_order_and_unchanged(transport: Transport) -> None:
    async with conversation(transport) as wired:
        sent = [torch.randn(8, 4) for _ in range(20)]
        for round, h in enumerate(sent, 1):
            await wired.servers["ada"].send(Embedding(round, h))
        for round, h in enumerate(sent, 1):
            got = await wired.clients["ada"].recv(Embedding, round, rows=8, width=4)
            assert got is not None and torch.equal(got.h, h)


@both
async def test_sent_messages_are_snapshots(transport: Transport) -> None:
    async with conversation(transport) as wired:
        h = torch.ones(2, 4)
        await wired.servers["ada"].send(Embedding(1, h))
        h.zero_()
        got = await wired.clients["ada"].recv(Embedding, 1)
        assert got is not None and got.h.sum() == 8


@both
async def test_a_round_collects_one_response_of_every_party(transport: Transport) -> None:
    async def party(wired: Wired, name: str) -> list[float]:
        link, heard = wired.servers[name], []
        async for t in link.rounds():
            await link.send(embedding(t, fill=t))
            gradient = await link.recv(Gradient, t, rows=2, width=4)
            assert gradient is not None
            heard.append(gradient.dh.sum().item())
        return heard

    async with conversation(transport) as wired:
        sides = [asyncio.create_task(party(wired, name)) for name in PARTIES]
        async for t in wired.clients.rounds(5):
            answers = await wired.clients.collect(Embedding, t, Quorum(), rows=2, width=4)
            assert list(answers) == PARTIES and not answers.missing
            await wired.clients.broadcast({name: Gradient(t, answers[name].h * 2) for name in answers})
        assert [await side for side in sides] == [[16.0 * t for t in range(1, 6)]] * 3


@both
async def test_rounds_end_when_the_server_closes(transport: Transport) -> None:
    async with conversation(transport) as wired:
        async for _ in wired.clients.rounds(1):
            pass
        seen = [t async for t in wired.servers["ada"].rounds()]
        assert seen in ([1], [])  # a party that comes late may find all rounds closed already


@both
async def test_a_straggler_skips_to_the_newest_round(transport: Transport) -> None:
    async with conversation(transport) as wired:
        async for _ in wired.clients.rounds(3):
            pass
        await asyncio.sleep(0.2)
        rounds = wired.servers["ada"].rounds()
        assert await anext(rounds) == 3


@both
async def test_recv_returns_none_when_the_server_has_gone_on(transport: Transport) -> None:
    async with conversation(transport) as wired:
        opening = wired.clients.rounds(2)
        await anext(opening)
        waiting = asyncio.create_task(wired.servers["ada"].recv(Gradient, 1))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await anext(opening)
        assert await waiting is None


@both
async def test_late_mail_is_dropped_and_counted(transport: Transport) -> None:
    async with conversation(transport) as wired:
        quorum = Quorum(need=2)
        for name in PARTIES[:2]:
            await wired.servers[name].send(embedding(1))
        first = await wired.clients.collect(Embedding, 1, quorum)
        assert first.missing == ("cyd",)
        await wired.servers["cyd"].send(embedding(1, fill=7))
        for name in PARTIES:
            await wired.servers[name].send(embedding(2))
        second = await wired.clients.collect(Embedding, 2, Quorum())
        assert second["cyd"].h.max() == 1
        assert wired.mailbox.late == {"cyd": 1}


@both
async def test_a_deadline_takes_the_parties_present(transport: Transport) -> None:
    async with conversation(transport) as wired:
        await wired.servers["bob"].send(embedding(1))
        clock = asyncio.get_running_loop().time
        begin = clock()
        answers = await wired.clients.collect(Embedding, 1, Quorum(need=0, grace=0.3))
        assert list(answers) == ["bob"] and answers.missing == ("ada", "cyd")
        assert 0.29 <= clock() - begin < 2


@both
async def test_a_silent_party_is_given_up_after_the_limit_and_named(transport: Transport) -> None:
    async with conversation(transport) as wired:
        await wired.servers["ada"].send(embedding(1))
        with pytest.raises(
            PartyLost, match=r"bob was lost: no Embedding for round 1 within 0.2 s \(nor from cyd\)"
        ) as lost:
            await wired.clients.collect(Embedding, 1, Quorum(limit=0.2))
        assert "its first message may wait for its table" in lost.value.hint
        with pytest.raises(PartyLost, match="ada was lost") as lost:
            await wired.clients.collect(Embedding, 2, Quorum(limit=0.1), among=["ada"])
        assert lost.value.hint.startswith("raise federation.timeouts.answer")


@both
async def test_a_lost_party_ends_a_wait_for_it_at_once(transport: Transport) -> None:
    async with conversation(transport) as wired:
        waiting = asyncio.create_task(wired.clients.collect(Embedding, 1, Quorum(limit=50_000)))
        await asyncio.sleep(0.05)
        await wired.cut("bob")
        with pytest.raises(PartyLost, match=r"bob was lost(?!: no Embedding)"):  # that it says at the limit
            await waiting


@both
async def test_a_lost_party_is_only_missing_where_the_quorum_allows_it(transport: Transport) -> None:
    async with conversation(transport) as wired:
        await wired.cut("bob")
        for name in ("ada", "cyd"):
            await wired.servers[name].send(embedding(1))
        answers = await wired.clients.collect(Embedding, 1, Quorum(need=2, grace=5))
        assert answers.missing == ("bob",)
        await wired.clients.broadcast({name: Gradient(1, torch.ones(2, 4)) for name in PARTIES})


@both
async def test_an_undeclared_kind_is_refused_and_named(transport: Transport) -> None:
    ours = {name: kind for name, kind in CONTRACT.kinds.items() if kind is not Evaluation}

    async with conversation(transport, ours=ours) as wired:
        await wired.servers["ada"].send(Evaluation(1, "test", 0, torch.ones(2, 4)))
        with pytest.raises(
            ContractError, match="ada sent Evaluation: expected one of Embedding, Gradient, got an undecl"
        ):
            await wired.clients.collect(Embedding, 1, Quorum(limit=5))


@both
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (torch.ones(9, 4), "rows <= 8 in dimension 0, got shape (9, 4)"),
        (torch.ones(2, 5), "width <= 4 in dimension 1, got shape (2, 5)"),
        (torch.ones(8), "float32 (rows, width), got shape (8,)"),
        (torch.ones(2, 4, dtype=torch.float64), "float32 (rows, width), got float64"),
        (torch.tensor([[1.0, math.nan, 1, 1]]), "finite numbers, got 1 of 4 not finite"),
        (torch.full((2, 4), math.inf), "finite numbers, got 8 of 8 not finite"),
    ],
    ids=["rows", "width", "rank", "dtype", "nan", "inf"],
)
async def test_a_message_outside_its_contract_is_refused_and_named(
    transport: Transport, bad: torch.Tensor, said: str
) -> None:
    async with conversation(transport) as wired:
        bypass(wired.servers["ada"], Embedding(1, bad))
        with pytest.raises(ContractError) as refused:
            await wired.clients.collect(Embedding, 1, Quorum(limit=5))
        assert str(refused.value) == f"ada sent Embedding.h: expected {said}"


@both
async def test_exact_dimensions_are_checked_if_the_protocol_names_them(transport: Transport) -> None:
    async with conversation(transport) as wired:
        await wired.servers["ada"].send(embedding(1, rows=3))
        with pytest.raises(ContractError, match="rows = 2 in dimension 0, got shape \\(3, 4\\)"):
            await wired.clients["ada"].recv(Embedding, 1, rows=2, width=4)


@both
async def test_an_oversized_message_is_refused_and_named(transport: Transport) -> None:
    async with conversation(transport) as wired:
        bypass(wired.servers["ada"], Embedding(1, torch.ones(100_000, 4)))
        with pytest.raises(ContractError, match=r"ada sent (Embedding.h|a frame): expected"):
            await wired.clients.collect(Embedding, 1, Quorum(limit=5))


@both
async def test_our_own_side_cannot_break_its_contract(transport: Transport) -> None:
    async with conversation(transport) as wired:
        with pytest.raises(ContractError, match=r"this side sent Embedding.h: expected rows <= 8"):
            await wired.servers["ada"].send(embedding(1, rows=9))


@both
async def test_arrivals_serve_every_party_in_turn(transport: Transport) -> None:
    async with conversation(transport) as wired:
        for n in range(1, 4):
            for name in PARTIES:
                await wired.servers[name].send(embedding(n))
        await asyncio.sleep(0.3)
        arrivals = wired.clients.arrivals(Embedding, rows=2, width=4)
        served = [(await anext(arrivals))[0] for _ in range(9)]
        assert [sorted(served[n : n + 3]) for n in (0, 3, 6)] == [PARTIES] * 3


@both
async def test_arrivals_omit_abandoned_rounds(transport: Transport) -> None:
    """All messages of rounds up to the named one, and of those before a requested checkpoint."""

    async with conversation(transport) as wired:
        for n in range(1, 6):
            await wired.servers["ada"].send(embedding(n))
        await wired.servers["bob"].send(embedding(2))
        await asyncio.sleep(0.3)
        wired.clients["ada"].request_save(Save(4))
        arrivals = wired.clients.arrivals(Embedding, after=1)
        served = [await anext(arrivals) for _ in range(2)]
        assert [(party, message.round) for party, message in served] == [("ada", 5), ("bob", 2)]
        assert wired.mailbox.late == {"ada": 4}


@both
async def test_arrivals_do_not_wait_for_ever(transport: Transport) -> None:
    async with conversation(transport) as wired:
        with pytest.raises(PartyLost, match=r"ada was lost: no Embedding within 0.2 s, nor from any other"):
            await anext(wired.clients.arrivals(Embedding, limit=0.2))


@both
async def test_a_party_without_a_round_is_answered_in_a_later_one(transport: Transport) -> None:
    async with conversation(transport) as wired:
        for n in (1, 2):
            wired.clients["ada"].open(n)
        await wired.clients["ada"].send(Gradient(1, torch.ones(2, 4)))
        await asyncio.sleep(0.3)
        assert await wired.servers["ada"].recv(Gradient, 1, until=2) is not None
        wired.clients["ada"].open(3)
        assert await wired.servers["ada"].recv(Gradient, 1, until=2) is None


@both
@pytest.mark.parametrize("how", ["save", "close"])
async def test_a_checkpoint_and_the_end_are_not_waited_beyond(transport: Transport, how: str) -> None:
    async with conversation(transport) as wired:
        waiting = asyncio.ensure_future(wired.servers["ada"].recv(Gradient, 1, until=9))
        wired.clients["ada"].open(2)
        await asyncio.sleep(0.3)
        assert not waiting.done()
        if how == "save":
            wired.clients["ada"].request_save(Save(1))
        else:
            wired.clients["ada"].close()
        assert await waiting is None


@both
async def test_traffic_counts_payload_by_kind(transport: Transport) -> None:
    async with conversation(transport) as wired:
        await wired.servers["ada"].send(embedding(1))
        await wired.clients["ada"].recv(Embedding, 1)
        assert wired.servers["ada"].traffic.sent == {"Embedding": [1, 32]}
        assert wired.clients["ada"].traffic.received == {"Embedding": [1, 32]}
