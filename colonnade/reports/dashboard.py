"""`colonnade up --dashboard`: a live page of a run, the web server for this page alone, and their thread."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from aiohttp import web

from colonnade.common.errors import InputError
from colonnade.common.observability.ports import is_called_rightly, is_loopback, split_address
from colonnade.common.observability.web_gate import Gate, Handler
from colonnade.common.run.event_loop import LoopThread
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.console.screen import Screen
from colonnade.reports.console.screen import out as console
from colonnade.reports.html.page import Html, policy, render, script, written
from colonnade.reports.records.run import read_run
from colonnade.reports.run_page.page import SCRIPT, html, write_page

LIVE = script("live.js")
PERIOD = 2.0  # seconds between two pages, and between a browser's requests
_SHARE = 0.1  # share of the time for making pages
_OPTION = "--dashboard"
_PORT = re.compile(r"[0-9]{1,5}")
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}")


def read_address(given: str) -> str:
    """Parses HOST:PORT; a bare port means loopback."""
    address = f"127.0.0.1:{given}" if _PORT.fullmatch(given) else given
    if not _ADDRESS.fullmatch(address) or split_address(address)[1] > 65535:
        hint = "a bare port is one of this machine alone; 0 is any that is free"
        raise InputError(f"{_OPTION} {given!r:.80}: expected HOST:PORT, or a port up to 65535", hint=hint)
    return re.sub("^localhost:", "127.0.0.1:", address)  # may be two addresses with different free ports


class Current:
    """Makes pages on request, and reuses a page for a while. `clock` counts seconds."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._page, self._next, self._over = b"", 0.0, False

    def end(self) -> None:
        """Fixes the next page as the last one."""
        self._over, self._next = True, 0.0

    def page(self) -> bytes:
        """Returns the newest page, which tells the browser to reload until the run has ended. Not thread-safe."""
        begun = self._clock()
        if begun >= self._next:
            over = self._over
            self._page = self._make(over).encode()
            spent = self._clock() - begun
            self._next = begun + max(PERIOD, spent / _SHARE) if not over else float("inf")
            if self._over and not over:  # it ended meanwhile
                self._next = 0.0
        return self._page

    def _make(self, over: bool) -> str:
        try:
            run = read_run(self._folder)
        except InputError as nothing:
            said = "The run has ended before it began." if over else "The run has not begun: its members are starting."
            said = str(nothing) if RunFolder(self._folder).summary.exists() else said
            content = Html(f'<p id="opening" class="headline">{written(said)}</p>')
            values = {"title": self._folder.name, "content": content}
            return render("base.html", values, script=SCRIPT + LIVE, again=_again(over), live=True)
        over = over or run.summary["status"] != "unfinished"
        return html([run], None, _again(over), live=LIVE)


def _again(over: bool) -> float:
    return 0.0 if over else PERIOD


_HEADERS = {
    "Content-Security-Policy": policy(SCRIPT + LIVE, live=True) + "; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Site:
    """Serves a page to every client, without authentication and without TLS.

    On loopback a request must name this machine (`Host`): otherwise a web site could resolve its own name to this
    address and read the page through a local user's browser (DNS rebinding).
    """

    def __init__(self, current: Current, address: str) -> None:
        self._current, self._address, self._host = current, address, split_address(address)[0]
        self._lock = asyncio.Lock()
        app = web.Application(client_max_size=1, middlewares=[self._guarded])
        app.router.add_get("/", self._page, allow_head=False)
        self._gate = Gate(app, _OPTION)
        self._last = -math.inf

    @property
    def followed(self) -> bool:
        """True if a client requested a page recently, and is likely to request again."""
        return time.monotonic() - self._last < 3 * PERIOD

    async def start(self) -> str:
        """Starts listening, and returns HOST:PORT."""
        return await self._gate.open(self._address)

    async def stop(self) -> None:
        await self._gate.close()

    async def _page(self, _request: web.Request) -> web.Response:
        async with self._lock:  # many browsers get one page
            body = await asyncio.to_thread(self._current.page)
        self._last = time.monotonic()
        return web.Response(body=body, content_type="text/html", charset="utf-8")

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not is_called_rightly(request.headers.get("Host", ""), self._host):
                raise web.HTTPForbidden(text="This page is for browsers that call this machine by its own name.\n")
            answer = await handler(request)
        except web.HTTPException as refusal:
            refusal.headers.update(_HEADERS)
            raise
        answer.headers.update(_HEADERS)
        return answer


_FAREWELL = PERIOD + 1.0  # seconds within which a following browser requests again


class Dashboard:
    """Serves a run's page from construction until it is closed.

    Args:
        given: HOST:PORT or a port on loopback, as on the command line.
    """

    def __init__(self, folder: Path, given: str) -> None:
        address = read_address(given)
        self._current = Current(folder)
        self._loop = LoopThread("dashboard")
        self._site = Site(self._current, address)
        try:
            self.url = f"http://{self._loop.run(self._site.start())}/"
        except BaseException:
            self._loop.close()
            raise
        console.point("dashboard", self.url)
        if not is_loopback(split_address(address)[0]):
            said = "anyone who reaches this address can read the page, and so can eavesdroppers: it has no TLS"
            console.say(f"  {said}", "yellow")

    def close(self) -> None:
        """Serves the last state until viewers have requested it, then stops."""
        self._current.end()
        try:
            if self._site.followed:
                time.sleep(_FAREWELL)
        finally:
            self._loop.run(self._site.stop())
            self._loop.close()


@contextmanager
def shown(folder: Path, address: str, screen: Screen) -> Iterator[None]:
    """Serves the page of a run during it, and writes it at its end if the run began."""
    with closing(Dashboard(folder, address)):
        yield
    if RunFolder(folder).events.exists():
        screen.point("page", write_page([read_run(folder)]))
