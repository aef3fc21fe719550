"""Real parties in one event loop over gRPC on loopback, and a server that sends them what a test chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from colonnade.client.member.process import PartyMember
from colonnade.common.alignment.messages import all_kinds, all_limits
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.crypto.sealing import Session
from colonnade.common.messaging.message import largest_bytes
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_cache import RunCache
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE
from colonnade.server.aggregation.masked_sums import Blinded, blinded
from colonnade.server.member.admission import Admission, DataShape
from colonnade.server.member.hub import Hub
from colonnade.server.member.listen import Listener
from colonnade.simulation.contexts import server_context


class AnyRun(Admission):
    """Admits parties with any checkpoints."""

    def _check_run(self, hello: Any) -> None:
        pass


class Repeated:
    """Session numbers that the test sets."""

    def __init__(self) -> None:
        self.next = 1

    def after(self, _last: int) -> int:
        self.next += 1
        return self.next - 1


@dataclass
class Liar:
    """A server that begins sessions as it likes, and its parties.

    Args:
        config: of all members.
        folder: with the parties' folders.
        hub, address: of the server.
        numbers: of its sessions.
        saved: party and round of every checkpoint that is reported.
    """

    config: Config
    folder: Path
    hub: Hub
    address: str
    numbers: Repeated
    saved: asyncio.Queue[tuple[str, int]]
    parties: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    events: asyncio.Queue[Event] = field(default_factory=asyncio.Queue)

    def start(self, names: Iterable[str] = ()) -> None:
        """Starts parties, all of them by default, in the folders that they had before."""
        federation = self.config.federation
        for name in names or federation.names:
            out = self.home(name)
            out.mkdir(parents=True, exist_ok=True)
            own = self.config.parties[name]
            find, broadcast = lambda: self.address, (self.events.put_nowait,)
            run = PartyMember(name, federation, own, self.folder, out, False, find, broadcast)
            self.parties[name] = asyncio.ensure_future(run.run())

    def home(self, name: str) -> Path:
        return self.folder / "parties" / name

    async def stop(self) -> list[BaseException | None]:
        """Ends all parties as a kill does; returns their errors until then, in the roster's order."""
        for task in self.parties.values():
            task.cancel()
        ended = await asyncio.gather(*self.parties.values(), return_exceptions=True)
        self.parties.clear()
        while any(not member.parted.is_set() for member in self.hub.members.values()):  # the server notices
            self.hub._changed.clear()
            await self.hub._changed.wait()
        return [None if isinstance(one, asyncio.CancelledError) else one for one in ended]

    async def again(self, *, restarted: bool) -> None:
        """The parties start again, or the session is rewound."""
        if restarted:
            await self.stop()
            self.start()
        else:
            self.hub.rewind("again")

    async def errors(self) -> dict[str, BaseException | None]:
        """The error of each party, once all have ended."""
        ended = await asyncio.gather(*self.parties.values(), return_exceptions=True)
        return dict(zip(self.parties, ended, strict=True))

    async def event(self, kind: str) -> None:
        """Waits for an event of a party."""
        while (await self.events.get())["kind"] != kind:
            pass

    async def begin(self, run: str, round: int = 0) -> Cohort:
        """Begins a session once all have joined, regardless of their checkpoints."""
        await self.hub.assemble(30)
        self.hub._run = run
        self.cohort, _ = self.hub.begin([round] if round else [], 0, self._between)
        return self.cohort

    async def summing(self, run: str) -> Blinded:
        """Sums over sets that the test gives, in the session that has begun."""
        ctx = server_context(self.config, self.folder, Telemetry(None))
        ctx.run_cache, ctx.session = RunCache(), Session(self.config.federation.id, run, self.hub.session, self.hashes)
        return await blinded(ctx, self.cohort, self.config.federation.protocol.embedding)  # type: ignore[attr-defined]

    async def sum(self, run: str, members: Collection[str]) -> Tensor | None:
        """The sum of round 1 over these."""
        sums = await self.summing(run)
        sums.set_of = lambda _round: list(members)  # type: ignore[method-assign]
        await anext(self.cohort.rounds(2))
        found = await sums.training(1, sums.ctx.schedule.batch(1))
        return found.total

    async def kept(self, checkpoint: int) -> None:
        """Waits until all parties have a checkpoint on the disk."""
        waiting = set(self.parties)
        while waiting:
            party, round = await self.saved.get()
            if round == checkpoint:
                waiting.discard(party)

    @property
    def hashes(self) -> dict[str, str]:
        return dict(self.config.federation.hashes())

    def warnings(self, name: str) -> list[str]:
        events = read_lines(self.home(name) / "events.jsonl")
        return [event["reason"] for event in events if event["kind"] == "warning"]

    async def _between(self, _round: int) -> None:
        await self.hub.gate()


@asynccontextmanager
async def lying(config: Config, folder: Path) -> AsyncIterator[Liar]:
    """The server, and its parties as they are started."""
    federation = config.federation
    contract = CONTRACTS[federation.protocol.name]
    kinds, limits = all_kinds(federation, contract), all_limits(federation, contract)
    ctx = server_context(config, folder, Telemetry(None)) if federation.align == "none" else None
    facts = DataShape(len(ctx.labels), 0) if ctx else DataShape(0, 0)
    numbers, saved = Repeated(), asyncio.Queue[tuple[str, int]]()
    admission = AnyRun(federation, facts, "", RevocationList(None), secure=False)

    def on_saved(party: str, round: int, _error: str) -> None:
        saved.put_nowait((party, round))

    hub = Hub(federation, contract, admission, "", Telemetry(None), saved=on_saved, numbers=numbers)  # type: ignore[arg-type]
    largest = max(largest_bytes(kind, limits) for kind in kinds.values()) + FRAME_ALLOWANCE
    listener = Listener(Codec(kinds, limits=limits), largest, hub.greet)
    port = await listener.start("127.0.0.1:0", None)
    there = Liar(config, folder, hub, f"127.0.0.1:{port}", numbers, saved)
    try:
        yield there
    finally:
        await there.stop()
        await hub.part(0)
        await listener.stop()
