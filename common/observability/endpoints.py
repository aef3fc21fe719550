"""A member's monitoring endpoints: metrics and health, each enabled by its section or environment."""

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
    """The settings of a member's section that are used here: HOST:PORT of each endpoint, "" for off."""

    @property
    def metrics(self) -> str: ...

    @property
    def health(self) -> str: ...


class Collector(Protocol):
    """Receives events and returns metrics, called from another thread at any time."""

    def __call__(self, event: Event, /) -> None: ...

    def collect(self) -> Iterable[Metric]: ...


class Endpoints(AbstractContextManager["Endpoints"]):
    """Context manager that runs both endpoints; if neither is enabled, it opens no port and costs nothing.

    `key` names the member's section in errors: server or parties.NAME.
    """

    def __init__(self, key: str, config: Watched) -> None:
        self._key, self._config = key, config
        self._open = ExitStack()
        self._exposition: Exposition | None = None
        self._health: Health | None = None
        self._hear: list[Callable[[Event], None]] = []

    def __enter__(self) -> Self:
        with ExitStack() as opening:  # each library is imported only if needed
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
        self._open.close()

    def __call__(self, event: Event) -> None:
        for listener in self._hear:
            listener(event)

    def show(self, collector: Collector) -> None:
        """Sends events to a collector and exposes its metrics; does nothing if metrics are off."""
        if self._exposition is not None:
            self._hear.append(collector)
            self._exposition.show(collector.collect)

    def announce(self, telemetry: Telemetry) -> None:
        """Announces the endpoints' addresses, if any: port 0 has been replaced by the actual one."""
        there = {"metrics": self._exposition, "health": self._health}
        addresses = {what: endpoint.address for what, endpoint in there.items() if endpoint is not None}
        if addresses:
            telemetry.event("observed", **addresses)
