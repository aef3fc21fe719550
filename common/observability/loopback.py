"""Access to a service that listens on loopback alone."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_NAMES = ("127.0.0.1", "localhost", "::1")  # names used by callers on this machine, or through a tunnel


def is_loopback(host: str) -> bool:
    """True if only this machine reaches a host."""
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
