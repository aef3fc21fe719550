"""End of a conversation: the server's messages and their order, on the virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.conversation.compression import arriving
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.errors import PartyFailed
from colonnade.server.member.service import ServerMember, ServerTask, prediction_task, training
from tests.support.federation import config

SERVER = ServerConfig.model_validate({"labels": {"source": "sklearn", "name": "digits"}})


class Hub:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    async def watch_revocations(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.calls.append(("unwatched",))

    def say_failure(self, party: str, error: BaseException) -> None:
        self.calls.append(("failed", party, str(error)))

    async def part(self, patience: float) -> None:
        self.calls.append(("part", patience))


def member(federation: FederationConfig, task: ServerTask) -> ServerMember:
    made = ServerMember(federation, SERVER, Path(), Path(), secure=False)
    made.take_up(task)
    return made


def converse(work: Awaitable[None], *, dismisses: bool = False, **more: Any) -> list[tuple[object, ...]]:
    """Recorded calls, the work's own error last."""
    federation = config({"name": "split"}).federation
    task = replace(training(federation), dismisses=dismisses)
    service, hub = member(federation, task), Hub()
    found: Any = hub

    async def scene() -> None:
        talk = asyncio.ensure_future(
            service.converse(found, work, lambda *said: hub.calls.append(("over", *said)), **more)
        )
        await asyncio.sleep(1)
        talk.cancel()
        (error,) = await asyncio.gather(talk, return_exceptions=True)
        if error is not None:
            hub.calls.append((type(error), str(error)))

    run_virtual(scene())
    return hub.calls


async def fail(error: Exception) -> None:
    await asyncio.sleep(0)
    raise error


def test_a_finished_party_has_time_for_the_farewell() -> None:
    assert converse(asyncio.sleep(0.5)) == [("unwatched",), ("part", 60.0), ("over", "completed", None)]


def test_a_failure_is_reported_with_its_party_before_the_farewell() -> None:
    for error, party in ((ValueError("torn"), "server"), (PartyFailed("ada", "torn"), "ada")):
        assert converse(fail(error)) == [
            ("failed", party, str(error)), ("unwatched",), ("part", 2.0), ("over", "failed", error),
            (type(error), str(error)),
        ]  # fmt: skip


def test_parties_are_sent_another_reason_if_one_is_given() -> None:
    done = converse(fail(ValueError("a secret")), shared=lambda _error: ValueError("it has failed"))
    assert done[0] == ("failed", "server", "it has failed") and done[-1] == (ValueError, "a secret")


@pytest.mark.parametrize("dismisses", [False, True])
def test_training_parties_dial_again_after_an_interruption_and_predicting_ones_are_released(dismisses: bool) -> None:
    parted = [("part", 2.0)] if dismisses else []
    done = converse(asyncio.sleep(9), dismisses=dismisses)
    assert done == [("unwatched",), *parted, ("over", "interrupted", None), (asyncio.CancelledError, "")]


def test_background_tasks_end_before_the_farewell() -> None:
    order: list[str] = []

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            order.append("ended")

    async def scene() -> None:
        federation = config({"name": "split"}).federation
        service, hub = member(federation, training(federation)), Hub()
        found: Any = hub
        task = asyncio.ensure_future(beside())
        await service.converse(
            found, asyncio.sleep(1), lambda *_said: order.append(f"over {hub.calls[-1][0]}"), beside=[task]
        )
        assert task.cancelled()

    run_virtual(scene())
    assert order == ["ended", "over part"]


def test_the_two_tasks_differ_in_purpose_messages_and_form() -> None:
    federation = config({"name": "split"}, "federation.compress={up: {top: 0.25}, evaluate: 8}").federation
    trains, asks = training(federation), prediction_task(federation)
    assert (trains.purpose, asks.purpose) == ({}, {"purpose": "prediction"})
    assert (trains.dismisses, asks.dismisses) == (False, True)
    assert "Embedding" in trains.kinds and "Output" in asks.kinds and "Output" not in trains.kinds
    assert trains.arriving["Embedding"] == arriving(federation.compress, trains.kinds)["Embedding"]
    assert set(asks.arriving.values()) == {federation.compress.evaluations}
    assert trains.largest > 0 and asks.largest > 0
