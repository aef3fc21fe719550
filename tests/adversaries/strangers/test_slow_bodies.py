"""Slow callers of a service: half a header, half a body, a response that is not read, a call that never comes.

Bounds: no cell.
"""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from colonnade.common.observability.web_gate import Gate
from colonnade.common.wire._generated.serving_pb2 import PredictReply, PredictRequest
from colonnade.server.prediction.serving.grpc_service import METHOD, Remote
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.serving.web import Web
from tests.adversaries.strangers.slow import HALF_BODY, HALF_HEADER, TOKEN
from tests.server.serving.test_batching import Stage

pytestmark = [pytest.mark.slow, pytest.mark.real_time]

SHORT = 0.3
BEARER = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def web_service(patience: float = SHORT) -> AsyncIterator[tuple[str, int]]:
    stage = Stage()
    answering, asking = (asyncio.ensure_future(work) for work in (stage.answer(), stage.batcher.run()))
    service = Web(stage.batcher, Tokens({"one": TOKEN}, 1e6), {}, patience)
    where = await service.start("127.0.0.1:0", None)
    try:
        yield where, int(where.rpartition(":")[2])
    finally:
        await service.stop()
        for task in (answering, asking):
            task.cancel()


async def said_to(port: int, words: bytes) -> bytes:
    """The response up to the end of the connection, which only the other end closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(words)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("words", [b"", b"GET /hea", HALF_HEADER])
async def test_an_incomplete_header_times_out(words: bytes) -> None:
    async with web_service() as (_, port):
        assert await said_to(port, words) == b""


async def test_an_incomplete_body_times_out() -> None:
    async with web_service() as (_, port):
        assert (await said_to(port, HALF_BODY)).startswith(b"HTTP/1.1 408 ")


async def test_a_body_without_a_token_is_not_read() -> None:
    async with web_service() as (_, port):
        assert (await said_to(port, HALF_BODY.replace(TOKEN.encode(), b"x"))).startswith(b"HTTP/1.1 401 ")


TINY = b"1\r\na\r\n" * 40_000  # chunks of one byte, each of which costs the parser 10 us


@pytest.mark.parametrize("token", [TOKEN, "x"])
def test_a_body_of_tiny_chunks_is_not_parsed_to_its_end(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that one read can hold are all parsed before anybody else is served."""
    parsed, turns, receive = 0, list[int](), RequestHandler.data_received

    def counted(self: RequestHandler, data: bytes) -> None:  # type: ignore[type-arg]
        nonlocal parsed
        parsed += len(data)
        turns.append(len(data))
        receive(self, data)

    monkeypatch.setattr(RequestHandler, "data_received", counted)
    head = b"POST /v1/predict HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n"

    async def play() -> None:
        async with web_service() as (_, port):
            said = await said_to(port, head % token.encode() + TINY)
            assert said == b"" if token == TOKEN else said.startswith(b"HTTP/1.1 401 ")

    asyncio.run(play())
    assert max(turns) <= 65536 and parsed <= (65536 if token == TOKEN else 10 * 4096)


async def test_an_idle_connection_is_closed_while_others_are_answered() -> None:
    async with web_service() as (where, port):
        idle = asyncio.create_task(said_to(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
        async with aiohttp.ClientSession(f"http://{where}", headers=BEARER) as caller:
            while not idle.done():
                assert (await caller.post("/v1/predict", json={"ids": ["p1"]})).status == 200
        assert idle.result().startswith(b"HTTP/1.1 200 OK") and idle.result().count(b"HTTP/1.1") == 1


async def test_a_response_that_is_not_read_is_dropped() -> None:
    async def large(_request: web.Request) -> web.Response:
        return web.Response(body=b"x" * (64 << 20))

    app = web.Application()
    app.router.add_get("/", large)
    gate = Gate(app, "--http", patience=SHORT)
    where = await gate.open("127.0.0.1:0")
    left, forget = asyncio.Event(), gate.forget
    gate.forget = lambda visit: (forget(visit), left.set())  # type: ignore[assignment, func-returns-value]
    _reader, writer = await asyncio.open_connection("127.0.0.1", int(where.rpartition(":")[2]), limit=1 << 16)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    await left.wait()
    writer.close()
    await gate.close()


@pytest.mark.parametrize(("length", "status"), [((1 << 20) + 1, 413), (1 << 40, 413)])
async def test_a_body_that_is_too_large_is_refused(length: int, status: int) -> None:
    async with web_service() as (_, port):
        head = HALF_BODY.replace(b"Content-Length: 100", b"Content-Length: %d" % length)
        reply = await said_to(port, head + b" " * min(length, 2 << 20))
        assert reply.startswith(b"HTTP/1.1 %d " % status)


async def test_a_body_that_unpacks_to_a_gigabyte_is_not_unpacked() -> None:
    async with web_service(10) as (where, _), aiohttp.ClientSession(f"http://{where}", headers=BEARER) as caller:
        packed = gzip.compress(b" " * (64 << 20))
        answer = await caller.post("/v1/predict", data=packed, headers={"Content-Encoding": "gzip"})
        assert answer.status == 400 and (await answer.json())["error"] == "the body is no JSON"


async def test_requests_that_take_long_leave_a_way_for_the_health_check() -> None:
    stuck, busy, asked = asyncio.Event(), asyncio.Event(), 0

    async def slow(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 8:
            busy.set()
        await stuck.wait()
        return web.Response(text="done")

    async def healthy(_request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/slow", slow)
    app.router.add_get("/healthz", healthy)
    gate = Gate(app, "--http", always=("/healthz",), most=16, patience=60)
    where = await gate.open("127.0.0.1:0")
    async with aiohttp.ClientSession(f"http://{where}", connector=aiohttp.TCPConnector(limit=0)) as caller:
        asking = [asyncio.create_task(caller.get("/slow")) for _ in range(8)]
        await busy.wait()
        assert {(await caller.get("/slow")).status for _ in range(40)} == {503}
        assert (await (await caller.get("/healthz")).text()) == "ok"
        stuck.set()
        assert {(await one).status for one in asking} == {200}
    await gate.close()


@asynccontextmanager
async def grpc_service(patience: float = SHORT) -> AsyncIterator[str]:
    stage = Stage()
    answering, asking = (asyncio.ensure_future(work) for work in (stage.answer(), stage.batcher.run()))
    service = Remote(stage.batcher, Tokens({"one": TOKEN}, 1e6), patience)
    try:
        yield await service.start("127.0.0.1:0", None)
    finally:
        await service.stop()
        for task in (answering, asking):
            task.cancel()


async def status_of(call: Any) -> grpc.StatusCode:
    return await call.code()


async def test_over_grpc_a_silent_connection_is_closed_and_a_call_that_never_comes_ends() -> None:
    async with grpc_service() as where:
        await said_to(int(where.rpartition(":")[2]), b"")
        async with grpc.aio.insecure_channel(where) as channel:
            ask = channel.stream_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
            call = ask(metadata=(("authorization", f"Bearer {TOKEN}"),))
            assert await status_of(call) == grpc.StatusCode.INVALID_ARGUMENT
            assert "did not come within" in await call.details()
            without = ask(metadata=(("authorization", "Bearer x"),))
            assert await status_of(without) == grpc.StatusCode.UNAUTHENTICATED


async def test_prompt_grpc_callers_are_answered_as_before() -> None:
    async with grpc_service() as where, grpc.aio.insecure_channel(where) as channel:
        ask = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
        reply = await ask(PredictRequest(ids=["p1", "x"]), metadata=(("authorization", f"Bearer {TOKEN}"),))
        assert [one.known for one in reply.predictions] == [True, False]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(PredictRequest(ids=["x" * (2 << 20)]), metadata=(("authorization", f"Bearer {TOKEN}"),))
        assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)


async def test_json_is_unchanged(tmp_path: Path) -> None:
    async with web_service(10) as (where, _), aiohttp.ClientSession(f"http://{where}", headers=BEARER) as caller:
        answer = await caller.post("/v1/predict", data=json.dumps({"ids": ["p1"]}))
        assert answer.status == 200 and (await answer.json())["predictions"][0]["known"]
        assert (await caller.get("/elsewhere")).status == 404
