"""The standard gRPC health service, for process orchestrators (grpc.io/docs/guides/health-checking)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Self

import grpc
from grpc_health.v1.health import HealthServicer
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from colonnade.common.observability.ports import cannot_listen, refuse_taken, with_port
from colonnade.common.observability.telemetry import Event
from colonnade.common.run.descriptors import affordable
from colonnade.common.wire.grpc_bounds import bounds

LIVE, READY = "", "colonnade"
"""The services: LIVE while this process is up; READY when the server listens, or the party has joined."""

_READY = {"listening": True, "join": True, "server_away": False, "end": False}  # by event kind
_LARGEST = 4096  # bytes of a request
_MOST, _CALLS = 256, 256  # connections and requests at a time
PATIENCE = 5.0  # seconds for the HTTP/2 preface
_GRACE = 0.2  # seconds for watchers to read the last state


class Health(AbstractContextManager["Health"]):
    """Plain-text gRPC port that reports only if this process is up and ready.

    It answers from its own thread: a member may compute in torch for longer than a probe waits, and is still alive.

    Args:
        address: HOST:PORT; port 0 takes a free one.
        key: its configuration key, for errors.
    """

    def __init__(self, address: str, key: str) -> None:
        self.address, self._key = address, key
        self._servicer = HealthServicer()
        self._say(LIVE, serving=True)
        self._say(READY, serving=False)
        options = [("grpc.max_receive_message_length", _LARGEST), *bounds(affordable(_MOST), PATIENCE)]
        self._server = grpc.server(ThreadPoolExecutor(2, "health"), options=options, maximum_concurrent_rpcs=_CALLS)
        add_HealthServicer_to_server(self._servicer, self._server)

    def __enter__(self) -> Self:
        refuse_taken(self.address, self._key)
        try:
            port = self._server.add_insecure_port(self.address)
        except RuntimeError as taken:
            raise cannot_listen(self.address, self._key, taken) from taken
        self.address = with_port(self.address, port)
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._servicer.enter_graceful_shutdown()
        self._server.stop(_GRACE).wait()

    def __call__(self, event: Event) -> None:
        if (ready := _READY.get(event["kind"])) is not None:
            self._say(READY, serving=ready)

    def _say(self, service: str, *, serving: bool) -> None:
        state = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        self._servicer.set(service, state)
