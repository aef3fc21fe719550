from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID

from colonnade.common.crypto.pki import names
from colonnade.common.errors import IdentityError

Certificate = x509.Certificate
MALFORMED = (
    ValueError,
    TypeError,  # a name of bits
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)


_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")


@dataclass(frozen=True)
class Description:
    """A readable description of a certificate; times are UTC, the serial is in hex."""

    subject: str
    issuer: str
    fingerprint: str
    serial: str
    valid_from: datetime
    valid_until: datetime
    hosts: tuple[str, ...]


def read_certificate(pem: bytes, where: str = "this") -> Certificate:
    """The first certificate in `pem`; `where` names it in errors."""
    return read_certificates(pem, where)[0]


def read_certificates(pem: bytes, where: str = "this") -> list[Certificate]:
    """All certificates in `pem`, at least one; `where` names them in errors."""
    try:
        return x509.load_pem_x509_certificates(pem)
    except MALFORMED as error:
        raise IdentityError(f"{where} is not a certificate in PEM", hint="ask for it again") from error


def certificate_pem(certificate: Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprint(certificate: Certificate | bytes) -> str:
    """`sha256:` and 64 hex digits over the whole certificate (DER); bytes are PEM."""
    return f"sha256:{_parsed(certificate).fingerprint(hashes.SHA256()).hex()}"


def short(text: str) -> str:
    """A short fingerprint for display: its first 12 hex digits. Never for a decision."""
    return f"{text[:19]}…"


def name_of(certificate: Certificate | bytes) -> str:
    """The name that a certificate certifies; bytes are PEM.

    Raises IdentityError if it holds no name, more than one, two that differ, or one that is not allowed.
    """
    parsed = _parsed(certificate)
    try:  # fields are parsed on access
        subject = [str(part.value) for part in parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        claimed = names.named_by(_alternatives(parsed, x509.DNSName))
    except MALFORMED as error:
        raise IdentityError("the certificate's name cannot be read", hint="ask for it again") from error
    if len(subject) != 1 or claimed != subject:
        raise IdentityError(
            f"the certificate speaks for {subject} and {claimed}, not for one party",
            hint="have it signed by `colonnade certs sign`",
        )
    return names.check_name(subject[0])


def describe(certificate: Certificate | bytes) -> Description:
    parsed = _parsed(certificate)
    try:  # fields are parsed on access
        return _described(parsed)
    except MALFORMED as error:
        raise IdentityError("the certificate is malformed", hint="ask for it again") from error


def _described(parsed: Certificate) -> Description:
    dns = [name for name in _alternatives(parsed, x509.DNSName) if not names.named_by([name])]
    return Description(
        subject=_common_name(parsed.subject),
        issuer=_common_name(parsed.issuer),
        fingerprint=fingerprint(parsed),
        serial=f"{parsed.serial_number:x}",
        valid_from=parsed.not_valid_before_utc,
        valid_until=parsed.not_valid_after_utc,
        hosts=tuple(map(_printable, (*dns, *_alternatives(parsed, x509.IPAddress)))),
    )


def is_authority(certificate: Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (*MALFORMED, x509.ExtensionNotFound):
        return False


def check_validity(certificate: Certificate, what: str, now: datetime | None = None, *, hint: str) -> None:
    """Returns if `certificate` is valid at `now` (UTC; the machine's clock if None); `what` names it in errors."""
    now = now or datetime.now(UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < begin:
        raise IdentityError(
            f"{what} holds from {in_words(begin)} only, and this machine's clock says {in_words(now)}",
            hint="set the clock, or have the certificate signed again",
        )
    if now > end:
        raise IdentityError(f"{what} expired on {in_words(end)}", hint=hint)


def in_words(time: datetime) -> str:
    """A time in the format of messages: `2026-03-01 12:00 UTC`."""
    return time.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def _parsed(certificate: Certificate | bytes) -> Certificate:
    return read_certificate(certificate) if isinstance(certificate, bytes) else certificate


def _alternatives(certificate: Certificate, kind: type[x509.DNSName | x509.IPAddress]) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    except MALFORMED as error:
        raise IdentityError(f"the certificate is malformed: {error}", hint="ask for it again") from error
    values: list[Any] = found.value.get_values_for_type(kind)
    return [str(value) for value in values]


def _common_name(name: x509.Name) -> str:
    return _printable(", ".join(str(part.value) for part in name.get_attributes_for_oid(NameOID.COMMON_NAME)))


def _printable(text: str) -> str:
    # The maker of a certificate chose this text, which is printed on a terminal and in logs.
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def host(text: str) -> x509.GeneralName:
    """A host of the server, an IP address or a DNS name, for a certificate; no wildcard or party's name."""
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
    if text.endswith(names.SUFFIX):
        raise IdentityError(
            f"a host cannot be named {text!r}: that ending is reserved for parties",
            hint="leave it out; the server's certificate carries its own name anyway",
        )
    return text
