"""A federation over real gRPC in one event loop, with metrics and health endpoints at all members."""

from __future__ import annotations

import asyncio
import urllib.request
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from colonnade.client.member.process import PartyMember
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.file import parse
from colonnade.common.run.json_text import read_lines
from colonnade.server.member.training import ServerRun
from tests.support.federation import tree

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def config(protocol: dict[str, Any], **federation: Any) -> Config:
    """The digits, with both endpoints of every member on free ports."""
    made = tree(protocol, **federation)
    for section in ("server", "every_party"):
        made[section] |= {"metrics": 0, "health": 0}
    return parse(made)


def read(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


def samples(text: str) -> Samples:
    """Samples by name and labels."""
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in found}


def value(of: Samples, name: str, **labels: str) -> float:
    return of[name, frozenset(labels.items())]


@dataclass
class Watched:
    """One run. `on_event` is called with every event of the server, while all members are paused.

    Attributes:
        invited: the parties that know the server's address; by default all.
    """

    config: Config
    folder: Path
    on_event: Callable[[Watched, Event], None]
    invited: set[str] = field(default_factory=set)
    address: str = ""

    def home(self, name: str) -> Path:
        return self.folder / name

    def endpoint(self, name: str, what: str) -> str:
        """Address of a member's endpoint, from its own events."""
        (event,) = [e for e in read_lines(self.home(name) / "events.jsonl") if e["kind"] == "observed"]
        return str(event[what])

    def metrics(self, name: str) -> Samples:
        return samples(read(self.endpoint(name, "metrics")))

    def run(self, beside: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Runs to the end. `beside` runs with the members."""
        asyncio.run(asyncio.wait_for(self._all(beside), 90))

    async def _all(self, beside: Callable[[], Coroutine[Any, Any, None]] | None) -> None:
        if beside is None:
            self.invited.update(self.config.federation.names)
        async with asyncio.TaskGroup() as members:
            for name in (SERVER, *self.config.federation.names):
                self.home(name).mkdir(parents=True)
                members.create_task(self._member(name))
            if beside is not None:
                members.create_task(beside())

    async def _member(self, name: str) -> None:
        federation = self.config.federation
        if name == SERVER:
            assert self.config.server is not None
            await ServerRun(
                federation, self.config.server, Path(), self.home(name), secure=False, listeners=(self._hear,)
            ).run()
            return
        own, find = self.config.parties[name], lambda: self.address if name in self.invited else ""
        await PartyMember(name, federation, own, Path(), self.home(name), secure=False, find_address=find).run()

    def _hear(self, event: Event) -> None:
        if event["kind"] == "listening":
            self.address = event["address"]
        self.on_event(self, event)
