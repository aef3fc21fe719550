"""Streams over real gRPC on loopback: cases beyond the conversation's conformance suite."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
import torch

from colonnade.client.dialling.dial import Dialer
from colonnade.common.conversation.parcels import Begin, Failure, Farewell, Hello, Open, Parcel
from colonnade.common.errors import ContractError, EnvironmentFault, PartyAway, PartyLost
from colonnade.common.protocols.split import CONTRACT, Embedding
from colonnade.common.wire import connection as connection_module
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.connection import Connection
from colonnade.common.wire.frame import METHOD, pack
from colonnade.server.member.listen import Listener
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.slow

CODEC = Codec(CONTRACT.kinds)
LARGEST = 1 << 20


@dataclass
class End:
    """One end, and its received messages."""

    connection: Connection
    came: asyncio.Queue[Parcel] = field(default_factory=asyncio.Queue)
    lost: asyncio.Queue[Exception] = field(default_factory=asyncio.Queue)

    def attach(self) -> End:
        self.connection.attach(self.came.put_nowait, self.lost.put_nowait)
        return self


@dataclass
class Pair:
    party: End
    server: End
    dialer: Dialer
    listener: Listener
    port: int


class Brittle:
    """A TCP relay to a port, whose connections a test resets."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._pumps: list[asyncio.Future[None]] = []

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def snap(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.wait(self._pumps)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, ours]
        self._pumps += [
            asyncio.ensure_future(self._pump(reader, ours)),
            asyncio.ensure_future(self._pump(theirs, writer)),
        ]

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
                await writer.drain()


@asynccontextmanager
async def joined(through: Callable[[int], Coroutine[Any, Any, int]] | None = None) -> AsyncIterator[Pair]:
    """A party and a server on one stream; neither is attached yet. The party dials what `through` makes of the port."""
    greeted = asyncio.Queue[Connection]()

    async def greet(connection: Connection, _pem: bytes | None) -> None:
        greeted.put_nowait(connection)

    listener = Listener(CODEC, LARGEST, greet)
    port = await listener.start("127.0.0.1:0", None)
    dialed = port if through is None else await through(port)
    dialer = Dialer(CODEC, LARGEST)
    up = await dialer.dial(lambda: f"127.0.0.1:{dialed}", lambda _host, _port: None, 20)
    down = await greeted.get()
    down.peer = "ada"
    try:
        yield Pair(End(up), End(down), dialer, listener, port)
    finally:
        await down.close()
        up.done.set()  # a party waits for the end of the stream, which an unattached one does not read
        await up.close()
        await dialer.close()
        await listener.stop()


def run(body: Callable[[Pair], Coroutine[Any, Any, None]]) -> list[dict[str, Any]]:
    """Runs a body on a pair; returns the loop's reported errors."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context))
        async with joined() as pair:
            await body(pair)

    asyncio.run(asyncio.wait_for(main(), 30))
    return complaints


def test_messages_before_a_reader_is_attached_are_queued() -> None:
    async def body(pair: Pair) -> None:
        pair.party.connection.post(Hello("ada", "f", "1"))
        server, other = pair.server.attach(), pair.party.attach()
        assert await server.came.get() == Hello("ada", "f", "1")
        server.connection.post(Farewell())
        await other.came.get()
        late = End(pair.party.connection)
        await pair.server.connection.close()
        await other.lost.get()
        assert isinstance(await late.attach().lost.get(), PartyLost)

    run(body)


@pytest.mark.parametrize("together", [True, False], ids=["in one frame", "in two frames"])
def test_a_session_begins_with_its_begin_message_even_if_it_is_read_late(together: bool) -> None:
    """The last party to join is sent `Begin` immediately, often in the same frame."""

    async def body(pair: Pair) -> None:
        server, party = pair.server.connection, pair.party.attach()
        server.post(Begin(7))
        server.session = 7
        if together:
            server.post(Open(3))
        assert await party.came.get() == Begin(7)
        if not together:
            server.post(Open(3))
        assert await asyncio.wait_for(party.came.get(), 5) == Open(3)
        assert party.connection.session == 7

    run(body)


def test_both_ends_count_the_same_bytes() -> None:
    async def body(pair: Pair) -> None:
        server = pair.server.attach()
        for round in range(1, 6):
            pair.party.connection.post(Embedding(round, torch.rand(100, 4)))
            await server.came.get()
        assert pair.party.connection.wire.sent == pair.server.connection.wire.received
        frame = pack(Embedding(1, torch.rand(100, 4)), 0, CODEC)
        assert pair.server.connection.wire.received == 5 * (len(frame) + 5)

    run(body)


def test_posting_into_a_stream_that_the_server_ended_is_silent_and_closing_it_too() -> None:
    async def body(pair: Pair) -> None:
        party = pair.party.attach()
        await pair.server.connection.close()
        assert "the connection was closed" in str(await party.lost.get())
        for end in (pair.server.connection, pair.party.connection):
            end.post(Farewell())
            await end.close()

    assert run(body) == []


def test_posting_into_a_stream_that_the_party_left_is_silent_and_closing_it_too() -> None:
    async def body(pair: Pair) -> None:
        server = pair.server.attach()
        await pair.dialer.close()
        assert isinstance(await server.lost.get(), PartyLost)
        server.connection.post(Farewell())
        await server.connection.close()

    assert run(body) == []


def test_a_malformed_frame_ends_the_stream_and_names_the_sender() -> None:
    async def body(pair: Pair) -> None:
        server = pair.server.attach()
        await pair.party.connection.stream.write(b"\xff" * 20)
        lost = await server.lost.get()
        assert isinstance(lost, ContractError)
        assert str(lost) == "ada sent a frame: expected a number of at most 64 bits, got a longer one"

    run(body)


def test_closing_does_not_wait_long_for_a_peer_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "CLOSING", 0.2)

    async def body(pair: Pair) -> None:
        stalled = asyncio.Event()

        class Stalled:
            async def write(self, frame: bytes) -> None:
                stalled.set()
                await asyncio.Event().wait()

        server = pair.server.connection
        server.stream = Stalled()  # type: ignore[assignment]
        server.post(Farewell())
        await asyncio.wait_for(server.close(), PATIENCE)
        assert stalled.is_set()

    assert run(body) == []


def test_the_last_message_of_a_party_reaches_a_busy_server() -> None:
    """gRPC drops messages that a server has not read when the other end cuts the stream."""

    async def body(pair: Pair) -> None:
        free, stream, server = asyncio.Event(), pair.server.connection.stream, pair.server.attach()

        class Busy:
            async def read(self) -> Any:
                await free.wait()
                return await stream.read()

        pair.server.connection.stream = Busy()  # type: ignore[assignment]
        last = [Embedding(1, torch.rand(100, 4)), Embedding(2, torch.rand(100, 4)), Failure("", "why")]

        async def leave() -> None:
            for parcel in last:
                pair.party.connection.post(parcel)
                await asyncio.sleep(0)  # a frame each
            await pair.party.connection.close()
            await pair.dialer.close()

        leaving = asyncio.create_task(leave())
        await asyncio.wait({leaving}, timeout=0.3)
        free.set()
        await server.lost.get()
        await leaving
        assert [type(server.came.get_nowait()) for _ in last] == [type(parcel) for parcel in last]

    assert run(body) == []


def test_a_party_with_full_mail_notices_that_its_connection_broke() -> None:
    """It does not read, and sends nothing: nobody but gRPC knows."""

    async def main() -> None:
        links: list[Brittle] = []

        async def through(port: int) -> int:
            links.append(Brittle(port))
            return await links[0].start()

        class Full:
            full = False

            async def room(self) -> None:
                await asyncio.Event().wait()

            def expects(self, _kind: str, _round: int) -> bool:
                return True

        async with joined(through) as pair:
            mail, server, party = Full(), pair.server.attach(), pair.party

            def receive(parcel: Parcel) -> None:
                mail.full = True
                party.came.put_nowait(parcel)

            party.connection.attach(receive, party.lost.put_nowait, mail)
            server.connection.post(Open(1))
            await party.came.get()
            server.connection.post(Open(2))
            await links[0].snap()
            assert isinstance(await party.lost.get(), PartyAway) and party.came.empty()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_no_other_method_is_served() -> None:
    async def body(pair: Pair) -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{pair.port}") as channel:
            assert await channel.unary_unary(f"{METHOD}Not")(b"").code() is grpc.StatusCode.UNIMPLEMENTED

    run(body)


def refuse(address: str) -> EnvironmentFault:
    async def main() -> None:
        async def greet(_connection: Connection, _pem: bytes | None) -> None:
            raise AssertionError("nobody comes")

        await Listener(CODEC, LARGEST, greet).start(address, None)

    with pytest.raises(EnvironmentFault) as refused:
        asyncio.run(main())
    assert "server.listen" in refused.value.hint
    return refused.value


@pytest.mark.parametrize(("held", "asked"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "[::]"), ("127.0.0.1", "[::]")])
def test_a_port_in_use_is_named(held: str, asked: str) -> None:
    """Every address of both kinds, [::], is also that of another."""
    with socket.create_server((held, 0)) as taken:
        port = taken.getsockname()[1]
        assert str(refuse(f"{asked}:{port}")) == f"cannot listen on {asked}:{port}: Address already in use"


@pytest.mark.parametrize("address", ["192.0.2.1:0", "127.0.0.1:99999"])
def test_an_address_that_is_not_ours_is_named(address: str) -> None:
    assert str(refuse(address)).startswith(f"cannot listen on {address}: ")


def test_an_unreachable_server_is_reported_with_the_last_reason() -> None:
    async def main() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        await Dialer(CODEC, LARGEST).dial(lambda: f"127.0.0.1:{port}", lambda _host, _port: None, 0.3)

    with pytest.raises(EnvironmentFault, match=r"did not come within 0.3 s: .*Connection refused") as gone:
        asyncio.run(main())
    assert "start the server" in gone.value.hint


def test_a_caller_with_a_better_diagnosis_gives_the_hint() -> None:
    def firewalled(_host: str, _port: int) -> None:
        raise EnvironmentFault("no answer", hint="look at the firewall")

    async def main() -> None:
        await Dialer(CODEC, LARGEST).dial(lambda: "127.0.0.1:1", firewalled, 0.1)

    with pytest.raises(EnvironmentFault, match=r"did not come within 0.1 s: no answer") as gone:
        asyncio.run(main())
    assert gone.value.hint == "look at the firewall"


def test_a_missing_address_is_reported() -> None:
    async def main() -> None:
        await Dialer(CODEC, LARGEST).dial(lambda: "", lambda _host, _port: None, 0.1)

    with pytest.raises(EnvironmentFault, match=r"an unknown address did not come within 0.1 s: its address is not kn"):
        asyncio.run(main())


@pytest.mark.parametrize("steps", range(8))
def test_a_start_that_is_cancelled_can_be_stopped(steps: int) -> None:
    async def greet(_connection: Connection, _certificate: bytes | None) -> None:
        raise AssertionError("nobody dials")

    async def main() -> None:
        listener = Listener(CODEC, LARGEST, greet)
        starting = asyncio.ensure_future(listener.start("127.0.0.1:0", None))
        for _ in range(steps):
            await asyncio.sleep(0)
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await listener.stop()

    asyncio.run(main())
