"""Names in certificates: those of parties, and the hosts of the server.

A certificate holds a name twice, as the subject's common name and as the DNS name `NAME.colonnade`. The first is for
display; TLS compares the second. It is never resolved, so it is valid wherever the server runs and whatever address a
party dials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from colonnade.common.errors import IdentityError

SERVER = "server"
TEMPLATE = "every_party"  # the section of a configuration that is merged under every party's own

LOOPBACK = ("localhost", "127.0.0.1", "::1")  # hosts of a server that is dialled from its own machine

_AUTHORITY = "ca"  # the authority's folder, next to those of the members
_NAME = re.compile(r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9])?")
_FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")
SUFFIX = ".colonnade"  # end of the DNS name of a party or of the server in its certificate


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
    """Returns `name` if it is allowed for a party: as `check_name`, and neither the server's nor the template's."""
    if check_name(name) in (SERVER, TEMPLATE):
        whose = "the server's name" if name == SERVER else "the section for all parties"
        raise IdentityError(f"{name!r} is {whose}, no party's", hint="choose another name")
    return name


def dns_name(name: str) -> str:
    """The DNS name in the certificate of `name`, which TLS compares: `NAME.colonnade`."""
    return name + SUFFIX


def named_by(names: Iterable[str]) -> list[str]:
    """The members among these DNS names: one in a certificate made here; hosts are left out."""
    return [name.removesuffix(SUFFIX) for name in names if name.lower().endswith(SUFFIX)]


def check_fingerprint(text: str) -> str:
    """Returns `text` in lower case if it is a fingerprint as `fingerprint` writes it."""
    if not _FINGERPRINT.fullmatch(text.lower()):
        raise IdentityError(
            f"{text[:80]!r} is not a fingerprint",
            hint="it is sha256: and 64 hex digits, as `colonnade certs show FILE` prints it",
        )
    return text.lower()
