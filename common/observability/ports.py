"""Addresses that a service listens on, and who may call one on loopback."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

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


_NAMES = ("127.0.0.1", "localhost", "::1")  # names used by callers on this machine, or through a tunnel


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_called_rightly(named: str, host: str) -> bool:
    """True if a request's `Host` header names the loopback host that it reached; other hosts are not checked.

    Otherwise a web site could resolve its own name to loopback and read the service through a local user's browser (DNS
    rebinding).
    """
    if not is_loopback(host):
        return True
    try:
        return urlsplit(f"//{named}").hostname in (*_NAMES, host)  # without the port: a tunnel may use another
    except ValueError:
        return False
