"""A party sends protocol messages without end: late, repeated or of a kind that nobody asks for.

Bounds: messages (party).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.parcels import Parcel, Refusal, Saved, Statement
from colonnade.common.errors import ContractError
from colonnade.common.protocols.split import CONTRACT, Embedding, Evaluation, Gradient
from colonnade.common.wire.codec import Codec
from tests.adversaries.parties.test_lying_party import ones
from tests.common.conversation.transports import Transport, Wired, both
from tests.support.false_party import LIAR, SETS, PartyPuppet, at, lied
from tests.support.in_memory import ROUNDS, agreed, members

MANY = 1000
ALLOWED = 64 + ROUNDS + 1
"""Messages of a kind that may come too late or twice, where a round asks for one."""

GOING_ON = ("federation.absence=continue", "federation.quorum={need: 3, grace: 1}")
LIMITS = {"rows": 8, "width": 4}


@contextmanager
def decoding() -> Iterator[Counter[str]]:
    """Counts decoded messages by kind."""
    counts, decode = Counter[str](), Codec._decode

    def counted(codec: Codec, kind: str, came: Any) -> Any:
        counts[kind] += 1
        return decode(codec, kind, came)

    with patch.object(Codec, "_decode", counted):
        yield counts


def flood(change: Callable[[Embedding], Any]) -> Callable[[Embedding], list[Parcel]]:
    return lambda sent: [sent, *[change(sent)] * MANY]


FLOODS: dict[str, tuple[int, Callable[[Embedding], Any]]] = {
    "of the first round": (3, lambda sent: replace(sent, round=1)),
    "of the round before": (3, lambda sent: replace(sent, round=2)),
    "of no round": (3, lambda sent: replace(sent, round=0)),
    "twice": (2, lambda sent: sent),
    "of the next round": (2, lambda sent: replace(sent, round=3)),
    "of a round far ahead": (2, lambda sent: replace(sent, round=1000)),
    "without rows": (3, lambda sent: Embedding(1, torch.ones(0, 4))),
    "beyond its largest size": (2, lambda sent: replace(sent, h=torch.ones(300, 4))),
    "of numbers that are none": (2, lambda sent: replace(sent, h=sent.h * torch.nan)),
    "of another kind": (3, lambda sent: ones(1)),
    "of another kind, of this round": (2, lambda sent: ones(2)),
}


@pytest.mark.parametrize(("round", "change"), FLOODS.values(), ids=FLOODS)
def test_where_rounds_go_on_without_absent_parties_the_flooder_is_put_out(
    tmp_path: Path, round: int, change: Callable[[Embedding], Any]
) -> None:
    with decoding() as decoded:
        scene = lied(tmp_path, at(Embedding, round, flood(change)), *GOING_ON)
    assert scene.error is None and sorted(scene.losses) == list(range(1, ROUNDS + 1))
    (leave,) = scene.of_kind("leave")
    kind = type(change(Embedding(1, torch.ones(1, 4)))).__name__
    assert leave["party"] == LIAR and f"{LIAR} sent {kind}: expected at most" in leave["reason"]
    assert "that are late, repeated or unasked" in leave["reason"]
    assert decoded[kind] < 0.3 * MANY


def test_late_ones_end_a_run_that_needs_everybody_and_few_of_them_are_decoded(tmp_path: Path) -> None:
    with decoding() as decoded:
        scene = lied(tmp_path, at(Embedding, 3, lambda sent: [*[replace(sent, round=1)] * MANY, sent]))
    with pytest.raises(ContractError, match=f"^{LIAR} sent Embedding: expected at most 68 that are late"):
        raise scene.error or AssertionError("the run went on")
    assert decoded["Embedding"] <= 4 * ROUNDS + ALLOWED


def test_an_honest_party_that_misses_every_round_is_not_put_out(tmp_path: Path) -> None:
    """It is always a round late, and so is every one of its messages."""
    rounds, before = 100, list[Parcel]()

    def lie(parcel: Parcel) -> Iterator[Parcel]:
        if isinstance(parcel, Embedding):
            before.append(parcel)
            yield from before[-2:-1]
        elif not isinstance(parcel, Evaluation):
            yield parcel

    scene = lied(tmp_path, lie, *GOING_ON, f"federation.rounds={rounds}", "federation.checkpoint.rounds=100")
    assert scene.error is None and sorted(scene.losses) == list(range(1, rounds + 1))
    assert not scene.of_kind("leave") and len(scene.of_kind("late")) >= rounds - 2


@pytest.mark.parametrize("one", [Statement(body=b"{}"), Saved(1, "no")], ids=lambda one: type(one).__name__)
def test_statements_and_checkpoints_without_end_are_a_flood_too(tmp_path: Path, one: Parcel) -> None:
    """Of an excess the relay tells; the connection goes on, unless they do."""
    scene = lied(tmp_path, at(Embedding, 2, lambda sent: [sent, *[one] * MANY]), *GOING_ON)
    assert scene.error is None and sorted(scene.losses) == list(range(1, ROUNDS + 1))
    (leave,) = scene.of_kind("leave")
    assert leave["party"] == LIAR and f"the last of them {type(one).__name__}" in leave["reason"]


@pytest.mark.parametrize("absence", ["rollback", "wait"])
def test_where_absent_parties_are_awaited_a_flood_ends_the_run_at_once(tmp_path: Path, absence: str) -> None:
    """It would not be let in again. Nor does it matter that the quorum could do without it."""
    late = at(Embedding, 3, lambda sent: [sent, *[replace(sent, round=1)] * MANY])
    scene = lied(tmp_path, late, f"federation.absence={absence}", GOING_ON[1])
    assert isinstance(scene.error, ContractError) and f"{LIAR} sent Embedding: expected at most" in str(scene.error)
    assert scene.seconds < 5


def test_a_flooder_that_comes_back_is_refused(tmp_path: Path) -> None:
    async def main() -> tuple[BaseException | None, list[str]]:
        with members(tmp_path, agreed(*SETS, *GOING_ON)) as there:
            server = there.start(SERVER)
            await there.listening.wait()
            returned = PartyPuppet(there, LIAR)

            async def flooder() -> None:
                late = at(Embedding, 2, lambda sent: [sent, *[replace(sent, round=1)] * MANY])
                await PartyPuppet(there, LIAR).play(late)
                await returned.play()

            others = [PartyPuppet(there, name).play() for name in there.config.federation.names if name != LIAR]
            playing = [asyncio.ensure_future(one) for one in (flooder(), *others)]
            error = await there.error(server)
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            return error, [refusal.reason for refusal in returned.said(Refusal)]

    error, reasons = run_virtual(main())
    assert error is None
    assert reasons and reasons[0].startswith(f"'{LIAR}' was cut off until the rounds begin anew: {LIAR} sent Embedding")


def conversation(transport: Transport) -> AbstractAsyncContextManager[Wired]:
    return transport.join(["ada"], CONTRACT.kinds, CONTRACT.kinds, LIMITS, LIMITS)


@both
async def test_over_every_transport_the_flooder_is_named_before_the_rest_is_decoded(transport: Transport) -> None:
    with decoding() as decoded:
        async with conversation(transport) as wired:
            server, party = wired.clients["ada"], wired.servers["ada"]
            for round in (1, 2, 3):
                server.open(round)
            collecting = asyncio.ensure_future(wired.clients.collect(Embedding, 3, Quorum(limit=30)))
            await asyncio.sleep(0.01)
            for _ in range(MANY):
                await party.send(Embedding(1, torch.ones(8, 4)))
            with pytest.raises(ContractError, match="ada sent Embedding: expected at most 68 that are late"):
                await collecting
    assert decoded["Embedding"] <= 68


@both
async def test_a_server_that_floods_a_party_is_named(transport: Transport) -> None:
    async with conversation(transport) as wired:
        server, party = wired.clients["ada"], wired.servers["ada"]
        server.open(1)
        server.open(2)
        receiving = asyncio.ensure_future(party.recv(Gradient, 2))
        await asyncio.sleep(0.01)
        with pytest.raises(ContractError, match="server sent Gradient: expected at most"):
            for _ in range(MANY):
                await server.send(Gradient(1, torch.ones(8, 4)))
                await asyncio.sleep(0)
            await receiving
            raise AssertionError("nobody was named")
