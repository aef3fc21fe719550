"""JSON over HTTP.

    POST /v1/predict   {"ids": ["7", "12"]}
    200                {"classes": [..], "predictions": [
                           {"id": "7", "known": true, "class": "..", "probabilities": [..]}, ..]}
                       if a threshold is configured also "decision": {"class": "..", "threshold": 0.3, "by": "f1",
                       "calibration": null}
                       in regression {"targets": [..], .. {"id": "7", "known": true, "values": [..]}
    GET  /v1/model     the model, and the latency of its responses
    GET  /healthz      200 while all parties are present, else 503
    GET  /openapi.json this interface, as an OpenAPI document

The first two need a token: Authorization: Bearer TOKEN. Errors are {"error": ".."}.
"""

from __future__ import annotations

import json
import ssl
from math import ceil
from typing import Any

from aiohttp import web

from colonnade.common.contracts.prediction import ROWS
from colonnade.common.errors import ColonnadeError
from colonnade.common.observability.web_gate import PATIENCE, Gate, Handler
from colonnade.common.run.json_text import parse_json
from colonnade.server.prediction.serving.batching import Batcher, Busy, Reply
from colonnade.server.prediction.serving.openapi import LONGEST, document
from colonnade.server.prediction.serving.tokens import Tokens, TooMany, Unknown

_LARGEST = 1 << 20  # bytes of a request
_KEY = "--http"


class Refused(Exception):
    """The request is malformed."""


def read_ids(body: Any) -> list[str]:
    """The ids of a request's JSON, as text. Raises Refused if there are none, too many, or an invalid one."""
    ids = body.get("ids") if isinstance(body, dict) else None
    if not isinstance(ids, list) or not ids:
        raise Refused('expected {"ids": [..]} with one id or more')
    if len(ids) > ROWS:
        raise Refused(f"{len(ids)} ids: at most {ROWS} at once")
    for id in ids:
        if isinstance(id, bool) or not isinstance(id, str | int) or not 0 < len(str(id)) <= LONGEST:
            raise Refused(f"an id is a text or a whole number of 1 to {LONGEST} characters")
    return [str(id) for id in ids]


def read_body(text: str) -> list[str]:
    """The ids of a request's body. Raises Refused as `read_ids`, or if it is not JSON, or has a key twice."""
    try:
        body = parse_json(text, once=True)
    except ValueError:
        raise Refused("the body is no JSON, or has a key twice") from None
    return read_ids(body)


class Web:
    """The HTTP service. `about` describes the model for `/v1/model`; a caller has `patience` seconds for a request's
    header, and again for its body.
    """

    def __init__(self, batcher: Batcher, callers: Tokens, about: dict[str, Any], patience: float = PATIENCE) -> None:
        self._batcher, self.tokens, self._about = batcher, callers, about
        app = web.Application(client_max_size=_LARGEST, middlewares=[_in_words])
        app.router.add_post("/v1/predict", self._predict)
        app.router.add_get("/v1/model", self._model)
        app.router.add_get("/healthz", self._healthy)
        app.router.add_get("/openapi.json", self._described)
        self._document = json.dumps(document()).encode()
        self.gate = Gate(app, _KEY, always=("/healthz",), patience=patience)

    async def start(self, address: str, tls: ssl.SSLContext | None) -> str:
        """Listens on HOST:PORT and returns the address. Raises EnvironmentFault if the port is in use."""
        return await self.gate.open(address, tls)

    async def stop(self) -> None:
        await self.gate.close()

    async def _predict(self, request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "")
        self.tokens.admit(shown, 0)  # before the body is read
        async with self.tokens.seat(shown):
            try:
                ids = read_body(await self.gate.text(request))
            except (ValueError, LookupError):  # wrong or unknown encoding
                raise Refused("the body is no JSON") from None
            self.tokens.admit(shown, len(ids))
            replies = await self._batcher.ask(ids)
        what = "classes" if self._batcher.classes else "targets"
        predictions = [_shown(reply, classes=self._batcher.classes) for reply in replies]
        return web.json_response({what: self._batcher.names, **self._decided(), "predictions": predictions})

    async def _model(self, request: web.Request) -> web.Response:
        self.tokens.admit(request.headers.get("Authorization", ""), 0)
        latency = {f"p{100 * q:g}": seconds for q, seconds in self._batcher.quantiles().items()}
        what = "classes" if self._batcher.classes else "targets"
        return web.json_response({**self._about, what: self._batcher.names, **self._decided(), "seconds": latency})

    def _decided(self) -> dict[str, Any]:
        return {} if (decision := self._batcher.decision) is None else {"decision": decision}

    async def _healthy(self, _request: web.Request) -> web.Response:
        if not self._batcher.open:
            return web.json_response({"status": "waiting for parties"}, status=503)
        return web.json_response({"status": "ok"})

    async def _described(self, _request: web.Request) -> web.Response:
        # Public, so without a token. Unlike the health check it has no reserved place.
        return web.Response(body=self._document, content_type="application/json")


def _shown(reply: Reply, *, classes: bool) -> dict[str, Any]:
    if not reply.known:
        return {"id": reply.id, "known": False}
    if not classes:
        return {"id": reply.id, "known": True, "values": reply.values}
    return {"id": reply.id, "known": True, "class": reply.label, "probabilities": reply.values}


@web.middleware
async def _in_words(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Returns errors as JSON; the text of a server error is withheld."""
    try:
        return await handler(request)
    except Unknown as unknown:
        return web.json_response({"error": str(unknown)}, status=401, headers={"WWW-Authenticate": "Bearer"})
    except TooMany as many:
        return web.json_response({"error": str(many)}, status=429, headers={"Retry-After": str(ceil(many.wait))})
    except Refused as refused:
        return web.json_response({"error": str(refused)}, status=400)
    except (Busy, ColonnadeError) as error:
        text = str(error) if isinstance(error, Busy) else "the parties do not answer"
        return web.json_response({"error": text}, status=503)
    except web.HTTPException as plain:
        return web.json_response({"error": plain.reason}, status=plain.status)
