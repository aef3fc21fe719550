"""Who may ask a service that listens on this machine alone."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_NAMES = ("127.0.0.1", "localhost", "::1")  # that a caller on this machine, or at a tunnel's end, knows us by


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_called_rightly(named: str, host: str) -> bool:
    """Whether a request's `Host` is a name of the host that it reached; of loopback alone, others have many names.

    Else any web site could have its own name lead to loopback, and read what is served there by the browser of whoever
    works on this machine.

    Args:
        named: the header; "" where there is none.
        host: that is listened on.
    """
    if not is_loopback(host):
        return True
    try:
        return urlsplit(f"//{named}").hostname in (*_NAMES, host)  # without its port: a tunnel may have another
    except ValueError:
        return False
