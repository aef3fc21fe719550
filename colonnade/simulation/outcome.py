"""Result of a simulated run."""

from __future__ import annotations

from dataclasses import dataclass, field

from colonnade.client.privacy.mechanisms import Privacy
from colonnade.client.training.context import ClientContext
from colonnade.client.transcript.capture import Capture
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.state import Snapshot
from colonnade.server.member.traffic import Totals
from colonnade.server.training.context import ServerContext


@dataclass(repr=False)  # asyncio.Runner prints the result's repr when it restores its signal handler
class Outcome:
    """Result of a run: contexts of both sides, every event, and every message in order of sending.

    Attributes:
        privacy: every party's policy, budget and count of releases.
        saved: every member's state after each round, if requested.
        seconds: of the virtual clock, from the first round to the last.
        totals: bytes of tensors by party and direction, and late messages, over all starts of the run.
        best_saved: the best round whose checkpoint all members hold, 0 if none.
        left: number and bytes of the messages that passed each party's egress, by party and kind.
    """

    server: ServerContext
    totals: Totals
    clients: dict[str, ClientContext] = field(default_factory=dict)
    privacy: dict[str, Privacy] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    messages: list[tuple[str, str, Message]] = field(default_factory=list)
    saved: dict[int, dict[str, Snapshot]] = field(default_factory=dict)
    status: str = "failed"
    error: Exception | None = None
    seconds: float = 0.0
    best_saved: int = 0
    captures: dict[str, Capture] = field(default_factory=dict)
    left: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    @property
    def payload(self) -> tuple[int, int]:
        return self.totals.payload()

    @property
    def late(self) -> dict[str, int]:
        return {name: self.totals.late[name] for name in self.clients}

    def of_kind(self, event: str) -> list[Event]:
        return [e for e in self.events if e["kind"] == event]
