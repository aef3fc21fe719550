"""Metrics over HTTP in Prometheus format. Importing this is slow: see common/observability/endpoints.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Self

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, SummaryMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from colonnade.common.observability.metric import Metric
from colonnade.common.observability.ports import is_called_rightly, split_address
from colonnade.common.observability.web_gate import Gate
from colonnade.common.run.event_loop import LoopThread

Family = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily | SummaryMetricFamily

_FAMILIES: Mapping[str, Callable[..., Family]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "info": InfoMetricFamily,
    "summary": SummaryMetricFamily,
}


class Exposition(AbstractContextManager["Exposition"]):
    """Context manager that serves one process's metrics from its own registry.

    Metrics are collected on every scrape, in a thread: a scrape does not wait for computation.

    Args:
        address: HOST:PORT; port 0 takes a free one.
        key: its configuration key, for errors.
    """

    def __init__(self, address: str, key: str) -> None:
        self.address = address
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._host = split_address(address)[0]
        self._reading = asyncio.Lock()
        app = web.Application(client_max_size=1)
        app.router.add_get("/metrics", self._metrics)
        self._gate = Gate(app, key)

    def __enter__(self) -> Self:
        self._loop = LoopThread("metrics")
        try:
            self.address = self._loop.run(self._gate.open(self.address))
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.run(self._gate.close())
        self._loop.close()

    async def _metrics(self, request: web.Request) -> web.Response:
        if not is_called_rightly(request.headers.get("Host", ""), self._host):
            raise web.HTTPForbidden(text="Metrics are for who calls this machine by its own name.\n")
        encode, kind = choose_encoder(request.headers.get("Accept", ""))
        async with self._reading:  # one scrape at a time
            body = await asyncio.to_thread(encode, self.registry)
        return web.Response(body=body, headers={"Content-Type": kind})

    def show(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Adds the metrics that `collect` returns. It is called in another thread, at any time."""
        self.registry.register(_Collected(collect))


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        return map(family, self._collect())


def family(metric: Metric) -> Family:
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
