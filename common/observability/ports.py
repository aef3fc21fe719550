from __future__ import annotations

import socket

from colonnade.common.errors import EnvironmentFault


def refuse_taken(address: str, key: str) -> None:
    """Tries a port before a library does, to report a clear error early; `key` is the address's configuration key."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as taken:
            raise cannot_listen(address, key, taken) from taken


def cannot_listen(address: str, key: str, reason: Exception) -> EnvironmentFault:
    said = getattr(reason, "strerror", None) or reason
    return EnvironmentFault(
        f"cannot listen on {address}: {said}",
        hint=f"another process has the port, or the address is not this machine's: choose another {key}",
    )


def split_address(address: str) -> tuple[str, int]:
    """'[::1]:9400' -> ('::1', 9400)."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def with_port(address: str, port: int) -> str:
    """'127.0.0.1:0' -> '127.0.0.1:41234'."""
    return f"{address.rpartition(':')[0]}:{port}"
