"""Connection limits of a web service: a maximum number and a time limit. Importing this imports aiohttp."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from colonnade.common.observability.ports import cannot_listen, refuse_taken, split_address, with_port
from colonnade.common.run.descriptors import affordable
from colonnade.common.run.rate_limit import Digest
from colonnade.common.text import escaped_lines

PATIENCE = 10.0
"""Seconds for TLS and a request's header, for its body, and to read the response and send the next request."""

_MOST = 512  # connections, if the descriptors suffice
_RESERVED = 8  # of them, reserved from slow requests
_LINGERING = 1.0  # seconds to drain the rest of an unwanted body
_BACKLOG = 128
_EXHAUSTED = 0.1  # seconds until a retry when no descriptor is left

# Bytes parsed at a time, before and after a request's header and token are known, and line ends in a request. A chunk
# of one byte costs the parser 10 us: without these bounds one caller keeps all others waiting.
_UNKNOWN, _KNOWN = 4096, 65536
_MOST_LINES = 8192

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _Visit(asyncio.BufferedProtocol):
    """An accepted connection: aiohttp's protocol, its alarm after `patience` seconds, and what it parses."""

    def __init__(self, inner: Any, left: Callable[[_Visit], None], patience: float) -> None:
        self.inner, self.working = inner, False
        self.admission: asyncio.Task[None] | None = None
        self._left, self._patience = left, patience
        self._transport: asyncio.Transport | None = None
        self._alarm = asyncio.get_running_loop().call_later(patience, self.end)
        self._deaf, self._lines, self._buffer = False, 0, bytearray()

    def work(self) -> None:
        """A request's header has arrived: stops the alarm."""
        self.working = True
        self._alarm.cancel()

    def rest(self) -> None:
        """The response is ready: the caller must read it and send the next request in time."""
        self.working, self._lines = False, 0
        self._alarm.cancel()
        self._alarm = asyncio.get_running_loop().call_later(self._patience, self.end)

    def ignore(self) -> None:
        """Stops parsing: the request was answered before its body had come."""
        self._deaf = True

    def end(self) -> None:
        self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self.admission is not None:
            self.admission.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.inner.connection_made(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._alarm.cancel()
        self._left(self)
        self.inner.connection_lost(error)

    def get_buffer(self, _sizehint: int) -> bytearray:
        size = _KNOWN if self.working else _UNKNOWN
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._deaf:
            return
        data = bytes(memoryview(self._buffer)[:nbytes])
        self._lines += data.count(b"\r\n")
        if self._lines > _MOST_LINES:
            self.end()
        else:
            self.inner.data_received(data)

    def eof_received(self) -> bool | None:
        return cast("bool | None", self.inner.eof_received())

    def pause_writing(self) -> None:
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        self.inner.resume_writing()


class Gate:
    """Listens for an aiohttp application.

    A connection has `patience` seconds to send a request, and as many to read the response. When all places are taken,
    the connection that has been idle for longest is closed for a new one, so a caller that sends its request at once is
    served whatever others do. Requests in progress are never ended, but leave some places free.

    Args:
        app: gets a middleware, so it must not be frozen yet.
        key: configuration key of the address, for errors.
        always: paths that are served even while all other places are taken, such as a health check's.
        most: connections; None takes the number that descriptors allow.
    """

    def __init__(
        self,
        app: web.Application,
        key: str,
        always: tuple[str, ...] = (),
        most: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._key, self._always, self._patience = key, always, patience
        self.capacity = affordable(_MOST) if most is None else most
        app.middlewares.append(self._counted)
        app.on_response_prepare.append(self._end_unread)
        self.runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=1.0, handler_cancellation=True,
            lingering_time=min(_LINGERING, patience), auto_decompress=False, logger=quiet("web", HttpProcessingError),
        )  # fmt: skip
        self._visits: dict[Any, _Visit] = {}  # by aiohttp's protocol, the longest idle first
        self._accepting: asyncio.Task[None] | None = None

    async def open(self, address: str, tls: ssl.SSLContext | None = None) -> str:
        refuse_taken(address, self._key)
        await self.runner.setup()
        host, port = split_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as taken:
            await self.runner.cleanup()
            raise cannot_listen(address, self._key, taken) from taken
        listening.setblocking(False)
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening, tls))
        await asyncio.sleep(0)  # it has begun to accept
        return with_port(address, listening.getsockname()[1])

    async def close(self) -> None:
        """Stops listening and waits for requests in progress."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        for visit in [visit for visit in self._visits.values() if not visit.working]:
            visit.end()
        await self.runner.cleanup()

    async def text(self, request: web.Request) -> str:
        """A request's body. Raises HTTPRequestTimeout, or HTTPRequestEntityTooLarge."""
        try:
            async with asyncio.timeout(self._patience):
                return await request.text()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None

    async def _accept(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        with listening:
            while True:
                try:
                    line, _ = await loop.sock_accept(listening)
                except OSError:
                    await asyncio.sleep(_EXHAUSTED)
                    continue
                if len(self._visits) >= self.capacity:
                    self._make_room()
                self._admit(line, tls)

    def _admit(self, line: socket.socket, tls: ssl.SSLContext | None) -> None:
        assert self.runner.server is not None  # open has set it up
        visit = _Visit(self.runner.server(), self.forget, self._patience)
        self._visits[visit.inner] = visit
        visit.admission = asyncio.get_running_loop().create_task(self._greet(visit, line, tls))

    async def _greet(self, visit: _Visit, line: socket.socket, tls: ssl.SSLContext | None) -> None:
        more = {} if tls is None else {"ssl_handshake_timeout": self._patience}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: visit, line, ssl=tls, **more)
        except (OSError, asyncio.CancelledError):  # TLS failed or took too long: no other connection is affected
            self.forget(visit)

    def _make_room(self) -> None:
        silent = next((visit for visit in self._visits.values() if not visit.working), None)
        if silent is not None:
            self.forget(silent)
            silent.end()

    def forget(self, visit: _Visit) -> None:
        self._visits.pop(visit.inner, None)

    @web.middleware
    async def _counted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        visit = self._visits.pop(request.protocol, None)
        if visit is None:  # closed to make room
            raise web.HTTPServiceUnavailable
        self._visits[request.protocol] = visit  # the last in order
        busy = sum(visit.working for visit in self._visits.values())
        if request.path not in self._always and busy >= self.capacity - _RESERVED:
            raise web.HTTPServiceUnavailable(reason="too many requests are being worked on")
        visit.work()
        try:
            return await handler(request)
        finally:
            visit.rest()

    async def _end_unread(self, request: web.Request, response: web.StreamResponse) -> None:
        """Ends the connection of a caller that is answered before its body has arrived, and says so in the response."""
        if request.content.is_eof():
            return
        response.force_close()
        response.headers["Connection"] = "close"
        if (visit := self._visits.get(request.protocol)) is not None:
            visit.ignore()


_LONGEST = 4000  # characters of a record


class Quiet(logging.Handler):
    """Drops records of callers' errors (`theirs`), and writes the rest to standard error at a bounded rate."""

    def __init__(self, theirs: type[Exception]) -> None:
        super().__init__(logging.WARNING)
        self._theirs, self._out = theirs, logging.StreamHandler()
        self._bounded = Digest(self._write)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], self._theirs):
            return
        text = escaped_lines(self.format(record))[:_LONGEST]
        self._bounded({"kind": "refused", "time": record.created, "party": "", "reason": text})

    def _write(self, said: dict[str, object]) -> None:
        self._out.emit(logging.makeLogRecord({"msg": "%s", "args": (said["reason"],)}))


def quiet(name: str, theirs: type[Exception]) -> logging.Logger:
    logger = logging.getLogger(f"colonnade.{name}")
    if not logger.handlers:
        logger.addHandler(Quiet(theirs))
        logger.propagate = False
    return logger
