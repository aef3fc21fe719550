"""Names in certificates and on rosters, and fingerprints. No library is needed for them.

A certificate holds a name twice, as the subject's common name and as the DNS name `NAME.colonnade`.
The first is for display; the second is compared by TLS. It is never resolved, so it is valid
wherever the server runs and whatever address a party dials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from colonnade.common.errors import IdentityError

SERVER = "server"
"""Name reserved for the server's certificate."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts of a server that is dialled from its own machine."""

_AUTHORITY = "ca"  # the authority's folder, next to those of the members
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
SUFFIX = ".colonnade"
"""End of the DNS name of a party or of the server in its certificate."""


def check_name(name: str) -> str:
    """Returns `name` if it is allowed in a certificate, the server's or a party's.

    Raises:
        IdentityError: it is not 1 to 63 of a-z, 0-9, - and _ with a letter or digit at both ends,
            or it is `ca`.
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
    """Returns `name` if it is allowed for a party.

    Raises:
        IdentityError: as `check_name`, or it is the server's.
    """
    if check_name(name) == SERVER:
        raise IdentityError(f"{name!r} is the server's name, no party's", hint="choose another name")
    return name


def dns_name(name: str) -> str:
    """The DNS name in the certificate of `name`, which TLS compares: `NAME.colonnade`."""
    return name + SUFFIX


def named_by(names: Iterable[str]) -> list[str]:
    """The members that these DNS names name: one in a certificate made here, hosts left out."""
    return [name.removesuffix(SUFFIX) for name in names if name.lower().endswith(SUFFIX)]


def check_fingerprint(text: str) -> str:
    """Returns `text` in lower case if it is a fingerprint as `fingerprint` writes it.

    Raises:
        IdentityError: it is not.
    """
    if not _FINGERPRINT.fullmatch(text.lower()):
        raise IdentityError(
            f"{text[:80]!r} is not a fingerprint",
            hint="it is sha256: and 64 hex digits, as `colonnade certs show FILE` prints it",
        )
    return text.lower()
