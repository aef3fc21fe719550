"""Metrics of a party for its endpoints."""

from __future__ import annotations

from collections.abc import Iterator

from colonnade.client.membership.dialer import Membership
from colonnade.client.run.sessions import PartySessions
from colonnade.common.observability import metric
from colonnade.common.observability.metric import Metric
from colonnade.common.observability.telemetry import Event


class ClientMetrics:
    def __init__(self, sessions: PartySessions, membership: Membership) -> None:
        self._sessions, self._membership = sessions, membership
        self._joined = False

    def __call__(self, event: Event) -> None:
        if event["kind"] in ("join", "server_away"):
            self._joined = event["kind"] == "join"

    def collect(self) -> Iterator[Metric]:
        name, own = self._sessions.name, self._sessions.progress
        yield metric.build(self._sessions.federation, name)
        yield from metric.rounds(own.done, own.round, own.planned)
        yield metric.round_seconds(own.phases.seconds(), own.done)
        yield from metric.traffic({name: {"up": own.traffic.sent, "down": own.traffic.received}})
        sent, received = self._membership.wire
        yield metric.wire({("up", name): sent, ("down", name): received})
        yield metric.connected({name: self._joined})
        yield metric.queues({("unsent", name): self._membership.unsent, ("unread", name): own.unread})
        if own.privacy is not None:
            yield from metric.privacy(own.privacy.plan, {name: own.privacy.releases})
        yield metric.checkpoint(own.saved)
