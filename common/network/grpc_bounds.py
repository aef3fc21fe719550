"""Limits on gRPC callers: connections and calls, each with a time limit."""

from __future__ import annotations

_CALLS = 64  # at once, over one connection
_IDLE = 300.0  # seconds without a call after which a connection is closed
_METADATA = 8192  # bytes


def bounds(connections: int, patience: float) -> list[tuple[str, int]]:
    """gRPC's settings of a server.

    Args:
        connections: maximum at a time; further ones are closed on arrival.
        patience: seconds for TLS and the HTTP/2 preface.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * patience)),
        ("grpc.max_connection_idle_ms", round(1000 * _IDLE)),
        ("grpc.max_concurrent_streams", _CALLS),
        ("grpc.max_metadata_size", _METADATA),
    ]
