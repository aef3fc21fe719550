"""The dashboard's web server: one page at /, and nothing else."""

from __future__ import annotations

import asyncio
import math
import time

from aiohttp import web

from colonnade.common.observability.loopback import is_called_rightly
from colonnade.common.observability.ports import split_address
from colonnade.common.observability.web_gate import Gate, Handler
from colonnade.reports.dashboard.current import PERIOD, Current
from colonnade.reports.dashboard.script import LIVE
from colonnade.reports.html.frame import policy
from colonnade.reports.html.script import SCRIPT

_KEY = "--dashboard"
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
        self._gate = Gate(app, _KEY)
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
