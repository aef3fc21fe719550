"""What one who asks over gRPC may hold of a service: connections and calls, each for a while."""

from __future__ import annotations

_CALLS = 64  # at once, over one connection
_IDLE = 300.0  # seconds without a call after which a connection is closed
_METADATA = 8192  # bytes


def bounds(connections: int, patience: float) -> list[tuple[str, int]]:
    """gRPC's settings of a server.

    Args:
        connections: at once; more are closed when they come.
        patience: seconds for TLS and the first words of HTTP/2.
    """
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * patience)),
        ("grpc.max_connection_idle_ms", round(1000 * _IDLE)),
        ("grpc.max_concurrent_streams", _CALLS),
        ("grpc.max_metadata_size", _METADATA),
    ]
