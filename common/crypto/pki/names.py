"""Names in certificates: those of parties, and the hosts of the server.

A certificate holds a name twice, as the subject's common name and as the DNS name `NAME.colonnade`. The first is for
display; TLS compares the second. It is never resolved, so it is valid wherever the server runs and whatever address a
party dials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address

from cryptography import x509

from colonnade.common.errors import IdentityError

SERVER = "server"

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts of a server that is dialled from its own machine."""

_AUTHORITY = "ca"  # the authority's folder, next to those of the members
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_SUFFIX = ".colonnade"


def check_name(name: str) -> str:
    """Returns `name` if a certificate may hold it, the server's or a party's.

    1 to 63 of a-z, 0-9, - and _ with a letter or digit at both ends, and not `ca`.
    """
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name[:80]!r} is not a name for a party",
            hint="use 1 to 63 of a-z, 0-9, - and _, beginning and ending with a letter or a digit",
        )
    if name == _AUTHORITY:
        raise IdentityError(f"{name!r} is the authority's name, no party's", hint="choose another name")
    return name


def check_party_name(name: str) -> str:
    """Returns `name` if it is allowed for a party: as `check_name`, and not the server's."""
    if check_name(name) == SERVER:
        raise IdentityError(f"{name!r} is the server's name, no party's", hint="choose another name")
    return name


def dns_name(name: str) -> str:
    """The DNS name in the certificate of `name`, which TLS compares: `NAME.colonnade`."""
    return name + _SUFFIX


def named_by(names: Iterable[str]) -> list[str]:
    """The members among these DNS names: one in a certificate made here; hosts are left out."""
    return [name.removesuffix(_SUFFIX) for name in names if name.lower().endswith(_SUFFIX)]


def host(text: str) -> x509.GeneralName:
    """A host of the server, an IP address or a DNS name, in the form of a certificate.

    Refuses wildcards and imitations of a party's name.
    """
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(_check_host_name(text.lower()))


def _check_host_name(text: str) -> str:
    labels = text.split(".")
    # A last label of digits is a mistyped IP address: no top-level domain is a number.
    if len(text) > 253 or labels[-1].isdigit() or not all(map(_LABEL.fullmatch, labels)):
        raise IdentityError(
            f"{text[:80]!r} is neither a host name nor an IP address",
            hint="give it as parties dial it, without port: fl.example.org, 10.0.0.7 or ::1",
        )
    if text.endswith(_SUFFIX):
        raise IdentityError(
            f"a host cannot be named {text!r}: that ending is reserved for parties",
            hint="leave it out; the server's certificate carries its own name anyway",
        )
    return text
