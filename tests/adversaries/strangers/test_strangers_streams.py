"""Streams with certificates of the authority that are not admitted: nothing is read, and one at a time is open.

Bounds: strangers (both).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
import pytest

from colonnade.common.conversation.parcels import Hello
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.crypto.pki.names import dns_name
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.split import CONTRACT
from colonnade.common.wire import connection as connection_module
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import FRAME_ALLOWANCE, METHOD, pack
from colonnade.server.member.admission import Admission, DataShape
from colonnade.server.member.hub import Hub
from colonnade.server.member.listen import Listener, ServerTls

pytestmark = pytest.mark.real_time

CODEC = Codec(CONTRACT.kinds)
LARGEST = 1 << 20
OPTIONS = [("grpc.ssl_target_name_override", dns_name("server")), ("grpc.use_local_subchannel_pool", 1)]


class Place:
    """A listening hub with ada in its roster; eve's certificate is of the same authority, and of no party."""

    def __init__(self, folder: Path) -> None:
        self.keys = folder / "keys"
        pins = make_federation(self.keys, ["ada", "eve"])
        fixed = {"id": "test", "protocol": "split", "classes": 2, "rounds": 3, "batch": 8, "seed": 0}
        roster = {"server": pins["server"], "parties": {"ada": pins["ada"]}}
        agreed = parse({"federation": {**fixed, **roster}}).federation
        self.revoked = RevocationList.create(folder / "revoked.json")
        self.events: list[Event] = []
        telemetry = Telemetry(None, self.events.append)
        admission = Admission(agreed, DataShape(100, 0), "a-run", self.revoked, secure=True)
        self.hub = Hub(agreed, CONTRACT, admission, "a-run", telemetry)
        self.read: list[bytes] = []

    def refused(self) -> list[str]:
        return [str(event["party"]) for event in self.events if event["kind"] == "refused"]

    @asynccontextmanager
    async def channel(self, party: str) -> AsyncIterator[grpc.aio.Channel]:
        server, identity = load_identity(self.keys / "server"), load_identity(self.keys / party)
        listener = Listener(CODEC, LARGEST, self.hub.greet)
        port = await listener.start("127.0.0.1:0", ServerTls(server.key_pem, server.chain_pem, server.ca_pem))
        credentials = grpc.ssl_channel_credentials(server.chain_pem, identity.key_pem, identity.chain_pem)
        try:
            async with grpc.aio.secure_channel(f"127.0.0.1:{port}", credentials, OPTIONS) as channel:
                yield channel
        finally:
            await self.hub.part(0)
            await listener.stop()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    there = Place(tmp_path)
    read = there.read

    class Watched(connection_module.Connection):
        """Records the bytes that the server reads."""

        def __init__(self, stream_: object, *more: object) -> None:
            super().__init__(_Noting(stream_, read), *more)  # type: ignore[arg-type]

    monkeypatch.setattr("colonnade.server.member.listen.Connection", Watched)
    return there


class _Noting:
    def __init__(self, stream: object, read: list[bytes]) -> None:
        self._stream, self._read = stream, read

    async def read(self) -> object:
        frame = await self._stream.read()  # type: ignore[attr-defined]
        self._read.append(frame)
        return frame

    async def write(self, frame: bytes) -> None:
        await self._stream.write(frame)  # type: ignore[attr-defined]


@pytest.mark.parametrize("party", ["eve", "ada"], ids=["of no party", "revoked"])
async def test_nothing_is_read_of_a_certificate_that_may_not_come_in(place: Place, party: str) -> None:
    place.revoked.revoke(load_identity(place.keys / "ada").chain_pem, "left")

    async with place.channel(party) as channel:
        call = channel.stream_stream(METHOD)()
        await call.write(pack(Hello(party, "test", "1"), 0, CODEC))
        answer = await call.read()
        assert b"is revoked: left" in answer if party == "ada" else b"no party 'eve' is in the roster" in answer
        assert await call.code() is grpc.StatusCode.OK
    assert place.read == [] and place.refused() == [party]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (b"\x12\x02\x0a\x00" * 1000, b"at most 2 fields, got more"),
        (pack(Hello("ada" * FRAME_ALLOWANCE, "test", "1"), 0, CODEC), b"a Hello of at most 65536 bytes"),
        (b"\x12\x02\x6a\x00", b"a Hello first, and nothing else, got Spent"),
    ],
    ids=["many", "large", "another"],
)
async def test_a_party_sends_one_hello_and_is_read_no_further(place: Place, frame: bytes, said: bytes) -> None:
    async with place.channel("ada") as channel:
        call = channel.stream_stream(METHOD)()
        answer = asyncio.create_task(call.read())
        with suppress(grpc.RpcError, asyncio.InvalidStateError):  # the server has ended the stream by then
            for _ in range(10):
                await call.write(frame)
        assert said in await answer
    assert place.read == [frame]


async def test_a_connection_has_one_stream_at_a_time(place: Place) -> None:
    async with place.channel("ada") as channel:
        first = channel.stream_stream(METHOD)()
        await first.wait_for_connection()
        second = channel.stream_stream(METHOD)()  # made later: of two that begin together either may be the first
        hello = pack(Hello("ada", "another", "1"), 0, CODEC)
        waiting = asyncio.create_task(second.write(hello))
        done, _ = await asyncio.wait({waiting}, timeout=0.5)
        assert not done and place.read == []
        first.cancel()
        await waiting
        assert b"is of federation 'another'" in await second.read()
