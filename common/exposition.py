"""Metrics over HTTP, as Prometheus reads them. Importing this costs a sixth of a second: see common/watch.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Self

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, SummaryMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from common.metric import Metric
from common.ports import cannot_listen, refuse_taken, split_address, with_port

Family = CounterMetricFamily | GaugeMetricFamily | InfoMetricFamily | SummaryMetricFamily

_FAMILIES: Mapping[str, Callable[..., Family]] = {
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
        self.address, self._key = address, key
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)

    def __enter__(self) -> Self:
        """Listens. Raises EnvironmentFault where the port is in use."""
        refuse_taken(self.address, self._key)
        host, port = split_address(self.address)
        try:
            self._server, self._thread = start_http_server(port, host, self.registry)
        except OSError as taken:
            raise cannot_listen(self.address, self._key, taken) from taken
        self.address = with_port(self.address, self._server.server_port)
        return self

    def __exit__(self, *_: object) -> None:
        """Listens no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def show(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Shows what `collect` returns from now on, too. It is called in another thread, at any moment."""
        self.registry.register(_Collected(collect))


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Family]:
        return map(family, self._collect())


def family(metric: Metric) -> Family:
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
