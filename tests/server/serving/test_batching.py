"""The batcher, and the two services in front of it, with a model of known predictions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import aiohttp
import grpc
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.common.contracts.prediction import ROWS
from colonnade.common.data.labels import LabelColumn
from colonnade.common.wire._generated.serving_pb2 import PredictReply, PredictRequest
from colonnade.server.prediction.exchange import Outputs as Said
from colonnade.server.prediction.exchange import Question, Questions
from colonnade.server.prediction.model import Model
from colonnade.server.prediction.row_index import RowIndex
from colonnade.server.prediction.serving.batching import ENDING, Batcher, Busy, Reply
from colonnade.server.prediction.serving.grpc_service import METHOD, Remote
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.prediction.serving.web import Refused, Web, read_ids
from colonnade.server.training.metrics.calibration import Platt
from colonnade.server.training.metrics.decision import Decision
from tests.support.federation import config

PERSONS = 50


def probabilities(row: int) -> Tensor:
    return torch.tensor([float(row), 1.0]).softmax(0)


class Stage:
    """A model of PEOPLE rows that counts its questions."""

    def __init__(self) -> None:
        self.decision: Decision | None = None
        labels = LabelColumn(
            torch.zeros(PERSONS, dtype=torch.int64), ("yes", "no"), ids=tuple(f"p{n}" for n in range(PERSONS))
        )
        self.questions, self.asked, self.row_index = Questions(), list[tuple[str, ...]](), set(labels.ids or ())
        row_index = RowIndex(config({"name": "split"}).federation, labels)
        finish = partial(torch.softmax, dim=1)
        names, decide = labels.classes, lambda: self.decision
        self.batcher = Batcher(Model("run", 1, row_index, names, True, self.questions, finish, decide=decide))

    async def answer(self) -> None:
        self.questions.hearing.set()
        while (question := await self.questions.next()) is not None:
            await asyncio.sleep(0.001)
            self.reply(question)

    def reply(self, question: Question) -> None:
        self.asked.append(question.ids)
        known = [id for id in question.ids if id in self.row_index]
        lines = torch.tensor([known.index(id) if id in self.row_index else -1 for id in question.ids])
        outputs = [[float(id.removeprefix("p")), 1.0] for id in known]
        question.answer.set_result(Said(lines, torch.tensor(outputs).reshape(-1, 2)))


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    stage = Stage()
    tasks = [asyncio.ensure_future(stage.answer()), asyncio.ensure_future(stage.batcher.run())]
    try:
        yield stage
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def on_stage(play: Callable[[Stage], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        async with staged() as stage, asyncio.timeout(20):
            return await play(stage)

    return asyncio.run(main())


@given(st.lists(st.lists(st.integers(-3, PERSONS + 3), min_size=1, max_size=8), min_size=1, max_size=12))
def test_every_caller_gets_the_predictions_of_its_own_ids_in_order(requests: list[list[int]]) -> None:
    async def play(stage: Stage) -> tuple[list[list[Reply]], int]:
        answers = await asyncio.gather(*(stage.batcher.ask([f"p{n}" for n in ids]) for ids in requests))
        return answers, len(stage.asked)

    answers, asked = on_stage(play)
    for ids, answer in zip(requests, answers, strict=True):
        assert [each.id for each in answer] == [f"p{n}" for n in ids]
        for n, each in zip(ids, answer, strict=True):
            known = 0 <= n < PERSONS
            assert each.known == known
            if known:
                assert each.values == pytest.approx(probabilities(n).tolist())
    assert asked <= 2  # requests that arrived meanwhile shared the next question


def test_the_quantiles_are_those_of_the_newest_requests() -> None:
    batcher = Stage().batcher
    assert batcher.quantiles() == {}
    for number in range(1, 101):
        batcher.note(float(number), 1)
    assert batcher.quantiles() == {0.5: 51.0, 0.95: 96.0}
    assert {metric.name for metric in batcher.collect()} >= {
        "colonnade_serve_seconds",
        "colonnade_serve_latency_seconds",
    }


WRONG: list[Any] = [
    None, [], {}, {"ids": []}, {"ids": "p1"}, {"ids": [None]}, {"ids": [True]}, {"ids": [""]}, {"ids": [1.5]},
    {"ids": ["x" * 300]}, {"ids": ["p1"] * (ROWS + 1)},
]  # fmt: skip


@pytest.mark.parametrize("body", WRONG, ids=lambda body: str(body)[:30])
def test_invalid_lists_of_ids_are_refused(body: Any) -> None:
    with pytest.raises(Refused):
        read_ids(body)


def test_json_over_http() -> None:
    async def play(stage: Stage) -> None:
        web = Web(stage.batcher, Tokens({"one": "secret"}, 20, clock=lambda: 0.0), {"run": "run"})
        address = await web.start("127.0.0.1:0", None)
        known = {"Authorization": "Bearer secret"}
        try:
            async with aiohttp.ClientSession(f"http://{address}") as caller:
                stage.questions.hearing.clear()
                assert (await caller.get("/healthz")).status == 503
                stage.questions.hearing.set()
                said = await caller.post("/v1/predict", json={"ids": ["p3", "nobody"]}, headers=known)
                reply = await said.json()
                assert (await caller.get("/healthz")).status == 200
                assert (await caller.post("/v1/predict", json={"ids": ["p3"]})).status == 401
                assert (await caller.get("/v1/model")).status == 401
                for body in (b"{", b'{"ids": ["p3"], "ids": ["p4"]}'):
                    wrong = await caller.post("/v1/predict", data=body, headers=known)
                    error = {"error": "the body is no JSON, or has a key twice"}
                    assert (wrong.status, await wrong.json()) == (400, error)
                many = await caller.post("/v1/predict", json={"ids": ["p1"] * 20}, headers=known)
                assert many.status == 429 and int(many.headers["Retry-After"]) >= 1
                assert (await caller.post("/v1/predict", data=b"x" * (1 << 21), headers=known)).status == 413
                assert (await caller.get("/elsewhere")).status == 404
                model = await (await caller.get("/v1/model", headers=known)).json()
        finally:
            await web.stop()
        first, second = reply["predictions"]
        assert first["probabilities"] == pytest.approx(probabilities(3).tolist())
        assert (first["class"], second) == ("yes", {"id": "nobody", "known": False})
        assert model["classes"] == ["yes", "no"] and model["seconds"].keys() == {"p50", "p95"}

    on_stage(play)


def test_the_same_over_grpc() -> None:
    async def play(stage: Stage) -> None:
        remote = Remote(stage.batcher, Tokens({"one": "secret"}, 20, clock=lambda: 0.0))
        address = await remote.start("127.0.0.1:0", None)
        try:
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
                known = (("authorization", "Bearer secret"),)
                reply = await call(PredictRequest(ids=["p3", "nobody"]), metadata=known)
                assert list(reply.names) == ["yes", "no"]
                assert list(reply.predictions[0].values) == pytest.approx(probabilities(3).tolist())
                assert not reply.predictions[1].known
                assert reply.predictions[0].label == "yes" and not reply.HasField("decision")
                stage.decision = Decision(0.1, "f1", calibration=Platt(1.0, 0.0))  # p3 is "no" with 0.12, p4 with 0.05
                reply = await call(PredictRequest(ids=["p3", "p4"]), metadata=known)
                assert [one.label for one in reply.predictions] == ["no", "yes"]
                said = reply.decision
                assert (said.label, said.threshold, said.by, said.calibration) == ("no", 0.1, "f1", "platt")
                stage.decision = None
                for ids, metadata, status in (
                    (["p3"], (), grpc.StatusCode.UNAUTHENTICATED),
                    ([], known, grpc.StatusCode.INVALID_ARGUMENT),
                    ([""] * 16, known, grpc.StatusCode.INVALID_ARGUMENT),  # costs the caller nothing
                    (["p3"] * 16, known, grpc.StatusCode.OK),
                    (["p3"] * 20, known, grpc.StatusCode.RESOURCE_EXHAUSTED),
                ):
                    answer = call(PredictRequest(ids=ids), metadata=metadata)
                    assert await answer.code() == status
        finally:
            await remote.stop()

    on_stage(play)


def test_callers_at_once_over_both_ways_get_their_own_predictions() -> None:
    async def play(stage: Stage) -> None:
        callers, shown = Tokens({"one": "secret"}, 10_000), "Bearer secret"
        web, remote = Web(stage.batcher, callers, {}), Remote(stage.batcher, callers)
        at_web, at_remote = await web.start("127.0.0.1:0", None), await remote.start("127.0.0.1:0", None)
        try:
            async with (
                aiohttp.ClientSession(f"http://{at_web}") as line,
                grpc.aio.insecure_channel(at_remote) as channel,
            ):
                call = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)

                async def over_http(n: int) -> list[float]:
                    body = {"ids": [f"p{n}", f"p{n}"]}
                    reply = await line.post("/v1/predict", json=body, headers={"Authorization": shown})
                    first, second = (await reply.json())["predictions"]
                    assert first == second
                    return list(first["probabilities"])

                async def over_grpc(n: int) -> list[float]:
                    reply = await call(PredictRequest(ids=[f"p{n}"]), metadata=(("authorization", shown),))
                    return list(reply.predictions[0].values)

                said = await asyncio.gather(*(way(n) for n in range(PERSONS) for way in (over_http, over_grpc)))
        finally:
            await web.stop()
            await remote.stop()
        for n in range(PERSONS):
            assert said[2 * n] == said[2 * n + 1] == pytest.approx(probabilities(n).tolist())
        assert len(stage.asked) < 2 * PERSONS  # they shared requests

    on_stage(play)


def test_requests_without_a_reply_when_the_service_ends_are_told_so() -> None:
    async def main() -> None:
        stage = Stage()  # whose parties do not answer
        serving = asyncio.ensure_future(stage.batcher.run())
        callers = Tokens({"one": "secret"}, 10_000)
        web, remote = Web(stage.batcher, callers, {}), Remote(stage.batcher, callers)
        at_web, at_remote = await web.start("127.0.0.1:0", None), await remote.start("127.0.0.1:0", None)
        async with aiohttp.ClientSession(f"http://{at_web}") as line, grpc.aio.insecure_channel(at_remote) as channel:
            call = channel.unary_unary(METHOD, PredictRequest.SerializeToString, PredictReply.FromString)
            known = {"Authorization": "Bearer secret"}
            post = asyncio.ensure_future(line.post("/v1/predict", json={"ids": ["p1"]}, headers=known))
            await stage.questions.next()  # it is under way, and the next one waits
            waiting = call(PredictRequest(ids=["p2"]), metadata=(("authorization", "Bearer secret"),))
            while not stage.batcher.waiting:  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0.001)
            serving.cancel()
            said = await post
            assert (said.status, await waiting.code()) == (503, grpc.StatusCode.UNAVAILABLE)
            assert await said.json() == {"error": await waiting.details()} == {"error": ENDING}
            with pytest.raises(Busy, match="the service ends"):
                await stage.batcher.ask(["p3"])
        await web.stop()
        await remote.stop()

    asyncio.run(asyncio.wait_for(main(), 20))
