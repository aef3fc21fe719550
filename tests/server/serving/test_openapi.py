"""docs/openapi.json describes the handlers: every response of the service fits it, and every described one occurs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import aiohttp
import pytest
import torch
from aiohttp import web as aiohttp_web

from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import PartyLost
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.prediction.serving.batching import Batcher
from colonnade.server.prediction.serving.openapi import document
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.serving.web import Refused, Web, read_ids
from colonnade.server.training.metrics.decision import Decision
from tests.server.serving.test_batching import PERSONS, WRONG, Stage, on_stage
from tests.support.federation import config

pytestmark = pytest.mark.real_time

DOCUMENT = document()
ABOUT = {"federation": "test", "protocol": "split", "run": "run"}
KNOWN = {"Authorization": "Bearer secret"}


def fits(value: Any, schema: dict[str, Any]) -> None:
    """Asserts that a value fits a schema of the document."""
    from jsonschema import Draft202012Validator  # at first use: every worker would import it for three seconds

    whole = {**schema, "components": DOCUMENT["components"]}
    found = [error.message for error in Draft202012Validator(whole).iter_errors(value)]
    assert not found, (value, found)


def described(path: str, method: str, status: int) -> dict[str, Any]:
    response = DOCUMENT["paths"][path][method]["responses"][str(status)]
    name = response.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = DOCUMENT["components"]["responses"][name] if name else response
    return found


class Caller:
    """Asks, and checks every response; `seen` are those that came."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session, self.seen = session, set[tuple[str, str, int]]()

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        response = await self.session.request(method, path, **more)
        said = described(path, method.lower(), response.status)
        assert response.content_type == "application/json"
        body = await response.json()
        fits(body, said["content"]["application/json"]["schema"])
        for header, meaning in said.get("headers", {}).items():
            value = response.headers[header]
            fits(int(value) if meaning["schema"].get("type") == "integer" else value, meaning["schema"])
        self.seen.add((path, method.lower(), response.status))
        return response.status, body


async def slow() -> Any:
    yield b'{"ids": '
    await asyncio.sleep(20)


def test_every_response_that_the_document_describes_occurs_and_fits_it() -> None:
    async def play(stage: Stage) -> None:
        web = Web(stage.batcher, Tokens({"one": "secret"}, 20), ABOUT, patience=0.3)
        address = await web.start("127.0.0.1:0", None)
        try:
            async with aiohttp.ClientSession(f"http://{address}") as session:
                caller = Caller(session)
                status, said = await caller.ask("GET", "/openapi.json")
                assert (status, said) == (200, DOCUMENT)
                await caller.ask("GET", "/v1/model", headers=KNOWN)  # before the first prediction
                status, said = await caller.ask("POST", "/v1/predict", json={"ids": ["p3", "no", 7]}, headers=KNOWN)
                assert (status, len(said["predictions"])) == (200, 3)
                _, said = await caller.ask("GET", "/v1/model", headers=KNOWN)
                assert "decision" not in said
                stage.decision = Decision(0.1, "cost", (1.0, 9.0))  # p3 is "no" with 0.12, p4 with 0.05
                _, said = await caller.ask("POST", "/v1/predict", json={"ids": ["p3", "p4"]}, headers=KNOWN)
                assert [one["class"] for one in said["predictions"]] == ["no", "yes"]
                assert said["decision"] == {"class": "no", "threshold": 0.1, "by": "cost", "calibration": None}
                _, again = await caller.ask("GET", "/v1/model", headers=KNOWN)
                assert again["decision"] == said["decision"]
                stage.decision = None
                for body in WRONG:
                    await caller.ask("POST", "/v1/predict", json=body, headers=KNOWN)
                await caller.ask("POST", "/v1/predict", json={"ids": ["p3"]})
                await caller.ask("GET", "/v1/model", headers={"Authorization": "Bearer wrong"})
                await caller.ask("POST", "/v1/predict", data=slow(), headers=KNOWN)
                await caller.ask("POST", "/v1/predict", data=b"x" * (1 << 21), headers=KNOWN)
                await caller.ask("GET", "/healthz")
                await trouble(stage, caller, web)
                for path, method, status in (("/elsewhere", "GET", 404), ("/v1/predict", "GET", 405)):
                    response = await session.request(method, path)
                    assert response.status == status
                    fits(await response.json(), {"$ref": "#/components/schemas/Error"})
        finally:
            await web.stop()
        assert caller.seen == set(operations())

    on_stage(play)


async def trouble(stage: Stage, caller: Caller, web: Web) -> None:
    """What comes of parties that are gone, of a caller that asks too much, and of too many callers."""
    batcher, ask = stage.batcher, stage.batcher.ask

    async def lost(_ids: list[str]) -> Any:
        raise PartyLost("p", "gone")

    batcher.ask = lost  # type: ignore[method-assign]
    await caller.ask("POST", "/v1/predict", json={"ids": ["p3"]}, headers=KNOWN)
    batcher.ask = ask  # type: ignore[method-assign]
    stage.questions.hearing.clear()
    await caller.ask("GET", "/healthz")
    stage.questions.hearing.set()
    most, web.gate.capacity = web.gate.capacity, 0
    for path in ("/openapi.json", "/v1/model"):
        await caller.ask("GET", path, headers=KNOWN)
    web.gate.capacity = most
    web.tokens = Tokens({"one": "secret"}, 1.0)
    await caller.ask("POST", "/v1/predict", json={"ids": ["p1"] * 200}, headers=KNOWN)  # a full bucket lets it through
    await caller.ask("POST", "/v1/predict", json={"ids": ["p1"]}, headers=KNOWN)
    await caller.ask("GET", "/v1/model", headers=KNOWN)


def operations() -> Iterator[tuple[str, str, int]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield from ((path, method, int(status)) for status in operation["responses"])


def test_every_route_is_described_and_the_other_way_round() -> None:
    async def routes() -> set[tuple[str, str]]:
        web = Web(Stage().batcher, Tokens({"one": "secret"}, 20), ABOUT)
        app: aiohttp_web.Application = web.gate.runner.app
        return {
            (str(route.resource and route.resource.canonical), route.method.lower()) for route in app.router.routes()
        }

    found = {(path, method) for path, method in asyncio.run(routes()) if method != "head"}
    assert found == {(path, method) for path, method, _ in operations()}


def test_the_document_asks_for_a_token_where_the_service_does() -> None:
    guarded = {path for path, methods in DOCUMENT["paths"].items() for one in methods.values() if "security" in one}
    assert guarded == {"/v1/predict", "/v1/model"}


QUESTION = {"$ref": "#/components/schemas/Question"}


@pytest.mark.parametrize("body", WRONG, ids=lambda body: str(body)[:30])
def test_the_described_question_refuses_what_the_service_refuses(body: Any) -> None:
    with pytest.raises(Refused):
        read_ids(body)
    with pytest.raises(AssertionError):
        fits(body, QUESTION)


def test_the_described_question_takes_texts_and_whole_numbers() -> None:
    for ids in (["a"], [7, -3], ["x" * 256]):
        fits({"ids": ids}, QUESTION)
        assert read_ids({"ids": ids})


async def test_a_regression_is_described() -> None:
    labels = LabelColumn(torch.zeros(PERSONS, 1), (), ids=tuple(f"p{n}" for n in range(PERSONS)))
    stage = Stage()
    row_index = RowIndex(config({"name": "split"}).federation, labels)
    model = Model("run", 1, row_index, ("price", "rent"), False, stage.questions, partial(torch.mul, 1.0))
    stage.batcher = Batcher(model)
    tasks = [asyncio.ensure_future(stage.answer()), asyncio.ensure_future(stage.batcher.run())]
    web = Web(stage.batcher, Tokens({"one": "secret"}, 20), ABOUT)
    address = await web.start("127.0.0.1:0", None)
    async with aiohttp.ClientSession(f"http://{address}") as session:
        caller = Caller(session)
        _, said = await caller.ask("POST", "/v1/predict", json={"ids": ["p3", "no"]}, headers=KNOWN)
        assert said["targets"] == ["price", "rent"] and said["predictions"][0]["values"] == [3.0, 1.0]
        _, said = await caller.ask("GET", "/v1/model", headers=KNOWN)
        assert said["targets"] == ["price", "rent"]
    await web.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_the_document_names_no_version_of_the_software_and_is_json() -> None:
    from colonnade.common.version import VERSION

    assert VERSION not in json.dumps(DOCUMENT) and DOCUMENT["openapi"].startswith("3.1")
