"""What a member shows to those who watch it: metrics and health, each where its section or environment asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Protocol, Self

from colonnade.common.observability.metric import Metric
from colonnade.common.observability.telemetry import Event, Telemetry

if TYPE_CHECKING:
    from colonnade.common.observability.exposition import Exposition
    from colonnade.common.observability.health import Health


class Watched(Protocol):
    """The part of a member's section that matters here; "" for off."""

    @property
    def metrics(self) -> str:
        """Where metrics are shown."""

    @property
    def health(self) -> str:
        """Where the health service answers."""


class Collector(Protocol):
    """Hears of events and is asked for metrics, by another thread and at any moment."""

    def __call__(self, event: Event, /) -> None:
        """Takes an event in."""

    def collect(self) -> Iterable[Metric]:
        """What there is to show now."""


class Endpoints(AbstractContextManager["Endpoints"]):
    """Both endpoints while it is entered; where neither is asked for it opens no port and costs nothing.

    Args:
        key: of the member's section, for errors: server or parties.NAME.
        config: that section.
    """

    def __init__(self, key: str, config: Watched) -> None:
        self._key, self._config = key, config
        self._open = ExitStack()
        self._exposition: Exposition | None = None
        self._health: Health | None = None
        self._hear: list[Callable[[Event], None]] = []

    def __enter__(self) -> Self:
        """Listens. Raises EnvironmentFault where a port is in use."""
        with ExitStack() as opening:  # the libraries are imported only where they are asked for
            if self._config.metrics:
                from colonnade.common.observability.exposition import Exposition  # noqa: PLC0415

                at = Exposition(self._config.metrics, f"{self._key}.metrics, or COLONNADE_METRICS")
                self._exposition = opening.enter_context(at)
            if self._config.health:
                from colonnade.common.observability.health import Health  # noqa: PLC0415

                self._health = opening.enter_context(
                    Health(self._config.health, f"{self._key}.health, or COLONNADE_HEALTH")
                )
                self._hear.append(self._health)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Listens no more."""
        self._open.close()

    def __call__(self, event: Event) -> None:
        """Takes an event in."""
        for listener in self._hear:
            listener(event)

    def show(self, collector: Collector) -> None:
        """Tells a collector of events, and shows what it collects; nothing where no metrics are asked for."""
        if self._exposition is not None:
            self._hear.append(collector)
            self._exposition.show(collector.collect)

    def announce(self, telemetry: Telemetry) -> None:
        """Says where the endpoints are, if there are any: a port of 0 has become another."""
        there = {"metrics": self._exposition, "health": self._health}
        addresses = {what: endpoint.address for what, endpoint in there.items() if endpoint is not None}
        if addresses:
            telemetry.event("observed", **addresses)
