"""Limits on gRPC callers: connections, calls and held bytes, each with a time limit.

A caller may send its HTTP/2 window times its streams before the server reads anything. gRPC enlarges windows by itself,
up to 32 MB a stream, if a caller sends fast and answers its pings late (BDP probes): a server that strangers can reach
turns the probes off and fixes the window's size. A message that is read gets the room that it needs.
"""

from __future__ import annotations

_CALLS = 64  # at once, over one connection
_IDLE = 300.0  # seconds without a call after which a connection is closed
_METADATA = 8192  # bytes
_WINDOW = 4096  # bytes of a call that is not read yet
_PENDING = (512, 1024)  # calls that no handler has taken yet: from here on some, and all, are refused

Option = tuple[str, int]


def fixed_window(bytes: int) -> list[Option]:
    """gRPC's settings for a window of this size for every stream, whatever its sender does."""
    return [("grpc.http2.lookahead_bytes", bytes), ("grpc.http2.bdp_probe", 0)]


def pending(some: int, all: int) -> list[Option]:
    """gRPC's settings for calls that no handler has taken: it refuses some from `some` on, and all from `all` on."""
    return [("grpc.server.max_pending_requests", some), ("grpc.server.max_pending_requests_hard_limit", all)]


def bounds(connections: int, patience: float) -> list[Option]:
    """gRPC's settings of a server: maximum connections, and seconds for TLS and the HTTP/2 preface."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_allowed_incoming_connections", connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * patience)),
        ("grpc.max_connection_idle_ms", round(1000 * _IDLE)),
        ("grpc.max_concurrent_streams", _CALLS),
        ("grpc.max_metadata_size", _METADATA),
        *fixed_window(_WINDOW),
        *pending(*_PENDING),
    ]
