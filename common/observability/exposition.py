"""Metrics over HTTP, as Prometheus reads them. Importing this takes a while: see common/observability/endpoints.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from colonnade.common.network.loopback import is_called_rightly
from colonnade.common.network.ports import split_address
from colonnade.common.network.web_gate import Gate
from colonnade.common.observability.metric import Metric

T = TypeVar("T")
Processes = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily | SummaryMetricFamily

_FAMILIES: Mapping[str, Callable[..., Processes]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "info": InfoMetricFamily,
    "summary": SummaryMetricFamily,
}


class Exposition(AbstractContextManager["Exposition"]):
    """What one process shows, in a registry of its own, while it is entered.

    Numbers are asked for when somebody reads them, in a thread: a half that computes is not waited for, and a run
    that nobody looks at pays nothing.

    Args:
        address: HOST:PORT; port 0 takes a free one.
        key: that it stands at in the configuration, for errors.
    """

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._host = split_address(address)[0]
        self._loop = asyncio.new_event_loop()
        self._reading = asyncio.Lock()
        app = web.Application(client_max_size=1)
        app.router.add_get("/metrics", self._metrics)
        self._gate = Gate(app, key)
        self._thread = threading.Thread(target=self._loop.run_forever, name="metrics", daemon=True)

    def __enter__(self) -> Self:
        """Listens. Raises EnvironmentFault where the port is in use."""
        self._thread.start()
        try:
            self.address = self._do(self._gate.open(self.address))
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Listens no more."""
        self._do(self._gate.close())
        self._leave()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _leave(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _metrics(self, request: web.Request) -> web.Response:
        if not is_called_rightly(request.headers.get("Host", ""), self._host):
            raise web.HTTPForbidden(text="Metrics are for who calls this machine by its own name.\n")
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        async with self._reading:  # one at a time, however many ask
            body = await asyncio.to_thread(encode, self.registry)
        return web.Response(body=body, headers={"Content-Type": kind})

    def show(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Shows what `collect` returns from now on, too. It is called in another thread, at any moment."""
        self.registry.register(_Collected(collect))


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Processes]:
        return map(family, self._collect())


def family(metric: Metric) -> Processes:
    """A metric in the library's terms."""
    made = _FAMILIES[metric.kind](metric.name, metric.about, labels=metric.labels)
    for labels, value in metric.values.items():
        named = dict(zip(metric.labels, labels, strict=True))
        if isinstance(value, tuple):
            parts = zip(("_count", "_sum"), value, strict=True)
            made.samples += [Sample(metric.name + end, named, part) for end, part in parts]
        else:
            end = {"counter": "_total", "info": "_info"}.get(metric.kind, "")
            made.samples.append(Sample(metric.name + end, named, value))
    return made
