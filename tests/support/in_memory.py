"""Whole members, as `colonnade server` and `colonnade client` run them, over streams in memory on the virtual clock.

Everything but gRPC and threads is real: frames, codecs, connections, membership, folders.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from colonnade.client.member.process import PartyMember
from colonnade.common.alignment.messages import all_kinds
from colonnade.common.config.members import Config
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import EnvironmentFault
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.json_text import read_lines
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.server.member.listen import Greet
from colonnade.server.member.training import ServerRun
from tests.support.federation import config
from tests.support.pipe import PipeEnd, connected, pipe

ROUNDS, ROWS, WIDTH = 4, 8, 4
SETS = (
    f"federation.rounds={ROUNDS}", "federation.epochs=0", f"federation.batch={ROWS}", "federation.transcript.every=0",
    "federation.timeouts={answer: 20, away: 20}",
)  # fmt: skip
LONG = 300.0
"""Virtual seconds within which a member ends: more than all of its time limits together."""


def agreed(*sets: str) -> Config:
    """A federation whose parties send embeddings of 8 rows and receive gradients, for 4 rounds."""
    return config({"name": "split", "embedding": WIDTH}, *SETS, *sets)


@dataclass
class Members:
    """Members of a federation that a test starts, and what connects them.

    Args:
        config: of all members.
        folder: with the members' folders.

    Attributes:
        up: False if no party reaches a server any more.
        events: of all members.
        ends: the other ends of new connections, where no server listens: for a test to take.
        through: lays the line between a party and an end that leads to the server.
        listening: set once a server listens.
    """

    config: Config
    folder: Path
    up: bool = True
    events: list[Event] = field(default_factory=list)
    ends: asyncio.Queue[PipeEnd] = field(default_factory=asyncio.Queue)
    through: Callable[[PipeEnd], PipeEnd] = lambda end: end
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    _accept: Callable[[PipeEnd], None] | None = None

    def start(self, name: str) -> asyncio.Task[None]:
        """Starts a member, in the folder that it had before."""
        home = self.home(name)
        home.mkdir(parents=True, exist_ok=True)
        federation, listeners = self.config.federation, (self.events.append,)
        if name == SERVER:
            assert self.config.server is not None
            server = ServerRun(
                federation, self.config.server, self.folder, home,
                secure=False, listeners=listeners, transport=partial(PipeListener, self),
            )  # fmt: skip
            return asyncio.ensure_future(server.run())
        return asyncio.ensure_future(self.party(name).run())

    def party(self, name: str, *, answers: bool = False) -> PartyMember:
        """A party that dials over streams in memory."""
        return PartyMember(
            name, self.config.federation, self.config.parties[name], self.folder, self.home(name),
            secure=False, find_address=lambda: "127.0.0.1:1", listeners=(self.events.append,), answers=answers,
            transport=partial(PipeDialer, self),
        )  # fmt: skip

    def home(self, name: str) -> Path:
        """The folder of a member."""
        return self.folder / name

    async def error(self, member: asyncio.Task[None]) -> BaseException | None:
        """The error that a member ends with, None at the end of the run. Fails if it does not end."""
        await asyncio.wait({member}, timeout=LONG)
        assert member.done(), "it hangs"
        return member.exception()

    def files(self, name: str) -> dict[str, bytes]:
        """Everything in the folder of a member but its own record of events, and of control messages that it sent."""
        home = self.home(name)
        paths = (path for path in sorted(home.rglob("*")) if path.is_file() and path.name != "events.jsonl")
        return {path.relative_to(home).as_posix(): _content(path) for path in paths}

    @property
    def codec(self) -> Codec:
        """Of both directions."""
        federation = self.config.federation
        return Codec(all_kinds(federation, CONTRACTS[federation.protocol.name]))

    def dial(self) -> PipeEnd:
        """A party's end of a new stream to the server. Raises EnvironmentFault if none is up."""
        if not self.up:
            raise EnvironmentFault("the server did not come")
        ours, theirs = pipe()
        if self._accept is None:
            self.ends.put_nowait(theirs)
        else:
            self._accept(theirs)
        return ours

    def listen(self, codec: Codec, largest: int, greet: Greet) -> None:
        """Passes new streams to a server."""
        self._greetings: set[asyncio.Future[None]] = set()

        def accept(end: PipeEnd) -> None:
            self._greetings.add(asyncio.ensure_future(greet(connected(end, codec, largest), None)))

        self._accept = accept
        self.listening.set()

    def hang_up(self) -> None:
        """The server listens no more."""
        self.up = False


class PipeDialer:
    """A party's end of streams in memory."""

    def __init__(self, there: Members, codec: Codec, largest: int) -> None:
        self._there, self._codec, self._largest = there, codec, largest
        self._connection: Connection | None = None

    async def dial(self, *_how: object) -> Connection:
        self._connection = connected(self._there.through(self._there.dial()), self._codec, self._largest, SERVER)
        return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.done.set()


class PipeListener:
    """A server's end of streams in memory."""

    def __init__(self, there: Members, codec: Codec, largest: int, greet: Greet, _parties: int) -> None:
        self._there, self._start = there, lambda: there.listen(codec, largest, greet)

    async def start(self, *_where: object) -> int:
        self._start()
        return 1

    async def stop(self) -> None:
        self._there.hang_up()


@contextmanager
def members(folder: Path, cfg: Config | None = None) -> Iterator[Members]:
    """Members without a network; at the end no party reaches a server any more."""
    there = Members(cfg or agreed(), folder)
    yield there
    there.hang_up()


def _content(path: Path) -> bytes:
    """A file, a ledger without its lines of control messages, and a pin without its note on the ledger."""
    if path.name == "ledger.jsonl":
        return json.dumps([{**line, "chain": ""} for line in read_lines(path) if "control" not in line]).encode()
    if path.name == "pinned.json":
        return json.dumps({**json.loads(path.read_bytes()), "ledger": "", "checksum": ""}).encode()
    return path.read_bytes()
