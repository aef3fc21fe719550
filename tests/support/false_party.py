"""Parties that a test scripts parcel by parcel, at a real server: one that lies, and the others that do as agreed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from colonnade.common.contracts.registry import agreed_parts
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.conversation.parcels import (
    Begin,
    Close,
    Farewell,
    Hello,
    Open,
    Parcel,
    Refusal,
    Rewind,
    Save,
    Saved,
    Welcome,
)
from colonnade.common.observability.telemetry import Event
from colonnade.common.protocols.split import Embedding, Evaluation
from colonnade.common.version import VERSION
from tests.support.in_memory import WIDTH, Members, agreed, members
from tests.support.pipe import Puppet

DIGITS = 1797  # rows of every party's table
LIAR = "party2"
SETS = ("federation.batch=256", "federation.checkpoint.rounds=1")

Answer = Parcel | Callable[[int], bytes]
"""A parcel, or a frame as it is, made for the number of the session."""

Lie = Callable[[Parcel], Iterable[Answer] | Awaitable[Iterable[Answer]]]
"""Makes what is sent of each parcel that an honest party would send."""


def honest(parcel: Parcel) -> Iterator[Answer]:
    yield parcel


class PartyPuppet(Puppet):
    """A party's end of a connection to a real server, with what an honest party does.

    Args:
        there: the federation, whose server has been started.
        name: of the party.
        held: rounds of the checkpoints that it claims.
    """

    def __init__(self, there: Members, name: str, held: tuple[int, ...] = ()) -> None:
        super().__init__(there.dial(), there.codec)
        self.name, self.held = name, held
        self._federation = there.config.federation
        self._schedule = Schedule(self._federation, DIGITS, 0)

    def hello(self, run: str = "") -> Hello:
        federation = self._federation
        parts = {**federation.stated(), **agreed_parts(federation)}
        return Hello(self.name, federation.id, VERSION, config=parts, rows=DIGITS, run=run, held=self.held)

    def embedding(self, round: int) -> Embedding:
        """The same in every run, of size one and different for parties and rounds."""
        rows = len(self._schedule.batch(round))
        number = self._federation.names.index(self.name)
        return Embedding(round, torch.sin(torch.arange(rows * WIDTH) + 7.0 * number + round).reshape(rows, WIDTH))

    def answers(self, parcel: Parcel) -> Iterator[Parcel]:
        """What an honest party sends when it hears this."""
        match parcel:
            case Open(round=round):
                yield self.embedding(round)
                for part in self._schedule.evaluations(round):
                    for block, rows in enumerate(self._schedule.blocks(part)):
                        yield Evaluation(round, part, block, torch.ones(len(rows), WIDTH))
            case Save(round=round):
                self.held = (round, *self.held)[:2]
                yield Saved(round)
            case Close():
                yield Farewell()
            case Rewind():
                begun = self.said(Begin)
                yield self.hello(begun[-1].run)

    async def play(self, lie: Lie = honest) -> None:
        """Joins, and answers everything as `lie` says until the stream ends."""
        await self.give(lie, self.hello())
        await self.hear(Welcome)
        while (parcel := await self.next()) is not None:
            for answer in self.answers(parcel):
                await self.give(lie, answer)

    async def give(self, lie: Lie, answer: Parcel) -> None:
        found = lie(answer)
        for one in (await found) if isinstance(found, Awaitable) else found:
            if isinstance(one, Parcel):
                self.send(one)
            else:
                self.send_bytes(one(self.session))


@dataclass
class Scene:
    """How a federation with a liar ended.

    Attributes:
        error: of the server; None at the end of the run.
        events: of the server.
        puppets: all parties, the liar among them.
        seconds: on the virtual clock.
    """

    error: BaseException | None
    events: list[Event]
    puppets: dict[str, PartyPuppet] = field(default_factory=dict)
    seconds: float = 0.0

    def of_kind(self, kind: str) -> list[Event]:
        return [event for event in self.events if event["kind"] == kind]

    @property
    def losses(self) -> dict[int, float]:
        """Of the rounds."""
        return {event["round"]: event["loss"] for event in self.of_kind("round")}

    def refusal(self, name: str = LIAR) -> str:
        """What the server told a party when it cut it off."""
        return next((refusal.reason for refusal in self.puppets[name].said(Refusal)), "")


def lied(folder: Path, lie: Lie = honest, *sets: str) -> Scene:
    """Runs a server and four scripted parties, one of which lies, to the server's end."""

    async def main() -> Scene:
        with members(folder, agreed(*SETS, *sets)) as there:
            server = there.start(SERVER)
            await there.listening.wait()
            puppets = {name: PartyPuppet(there, name) for name in there.config.federation.names}
            playing = [
                asyncio.ensure_future(puppet.play(lie if name == LIAR else honest)) for name, puppet in puppets.items()
            ]
            error = await there.error(server)
            seconds = asyncio.get_running_loop().time()
            for task in playing:
                task.cancel()
            await asyncio.gather(*playing, return_exceptions=True)
            return Scene(error, there.events, puppets, seconds)

    return run_virtual(main())


def at(kind: type[Parcel], number: int, change: Callable[[Any], Iterable[Answer]]) -> Lie:
    """Lies in one parcel of a kind only, counted from 1."""
    seen = 0

    def lie(parcel: Parcel) -> Iterable[Answer]:
        nonlocal seen
        seen += isinstance(parcel, kind)
        return change(parcel) if isinstance(parcel, kind) and seen == number else (parcel,)

    return lie
