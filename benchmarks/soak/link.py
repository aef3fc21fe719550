"""Links between parties and the server: TCP proxies on loopback that can be cut, held and closed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from typing import Any

_RESET = struct.pack("ii", 1, 0)  # closing sends RST, as after a pulled cable that a router noticed


class Links:
    """The event loop of all links, in a thread. A context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: list[Link] = []

    def __enter__(self) -> Links:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def new(self) -> Link:
        link = Link(self._port, self)
        self.run(link.start())
        self._links.append(link)
        return link

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(main, self._loop).result(30)


class Link:
    """One link.

    Attributes:
        carried: connections so far.
    """

    def __init__(self, server: int, links: Links) -> None:
        self.port, self.carried = 0, 0
        self._server, self._links = server, links
        self._flowing, self._accepts = asyncio.Event(), True
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open(self) -> int:
        return len(self._writers) // 2

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._listener.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Resets all connections at both ends; accepts new ones."""
        self._links.run(self._cut())

    def hold(self) -> None:
        """Forwards nothing until `mend`; connections stay open, and new ones are accepted."""
        self._links.run(self._hold())

    def close(self) -> None:
        """Resets all connections, and each new one at once, until `mend`."""
        self._accepts = False
        self.cut()

    def mend(self) -> None:
        """Forwards again, including what was held."""
        self._accepts = True
        self._links.run(self._mend())

    async def _cut(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _hold(self) -> None:
        self._flowing.clear()

    async def _mend(self) -> None:
        self._flowing.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepts:
            _reset(writer)
            return
        try:
            onwards = await asyncio.open_connection("127.0.0.1", self._server)
        except OSError:
            _reset(writer)
            return
        self.carried += 1
        pair = {writer, onwards[1]}
        self._writers |= pair
        try:
            await asyncio.gather(self._pump(reader, onwards[1]), self._pump(onwards[0], writer))
        finally:
            self._writers -= pair
            for each in pair:
                each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            await self._flowing.wait()
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
