"""The certificate authority: one key, used only to sign certificates.

It certifies a name once, when a federation is set up. A signed certificate alone never admits a party
(`peers.verify_peer` compares the fingerprint that the roster pins), so the holder of this key can create names but no
members.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.common.crypto.pki import files, names
from colonnade.common.crypto.pki.certificates import (
    Certificate,
    certificate_pem,
    check_validity,
    describe,
    is_authority,
    read_certificate,
)
from colonnade.common.crypto.pki.keys import PrivateKey, load_key, new_key, save_key
from colonnade.common.crypto.pki.requests import Request, alternative_names, read_request
from colonnade.common.errors import IdentityError

CLOCK_SKEW = timedelta(minutes=5)
"""A certificate's validity begins this long before its creation: the other machine's clock may be behind."""


class Role(StrEnum):
    """Permitted use of a certificate: to dial (a party), or to be dialled (the server)."""

    PARTY = "party"
    SERVER = "server"


_USAGE = {Role.PARTY: ExtendedKeyUsageOID.CLIENT_AUTH, Role.SERVER: ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True)
class Authority:
    """A certificate authority: its public certificate, and its key, which stays here."""

    certificate: Certificate
    key: PrivateKey = field(repr=False)

    @classmethod
    def make(cls, *, days: int = 3650) -> Authority:
        """A new authority with a self-signed certificate, in memory only."""
        key = new_key()
        # Two authorities differ in name as well as in key, so that `certs show` distinguishes them.
        common_name = f"Colonnade CA {secrets.token_hex(4)}"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        begin, end = _period(days, datetime.now(UTC))
        public = key.public_key()
        builder = _builder(subject=name, issuer=name, key=public, issuer_key=public, begin=begin, end=end)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @classmethod
    def make_in(cls, folder: Path, *, days: int = 3650) -> Authority:
        """A new authority kept in `folder` as `key.pem` and `cert.pem`; refuses a folder that holds one."""
        authority = cls.make(days=days)
        save_key(authority.key, files.make_folder(folder) / "key.pem")
        # The key is new, so a certificate that was here without a key is useless.
        files.write(folder / "cert.pem", certificate_pem(authority.certificate), overwrite=True)
        return authority

    @classmethod
    def load(cls, folder: Path) -> Authority:
        hint = f"make one, on a machine that stays offline: colonnade certs ca {folder}"
        key = load_key(folder / "key.pem", hint=hint)
        path = folder / "cert.pem"
        certificate = read_certificate(files.read(path, hint=hint), str(path))
        if certificate.public_key() != key.public_key():
            raise IdentityError(f"{folder}/key.pem does not belong to {path}", hint=hint)
        if not is_authority(certificate):
            raise IdentityError(f"{path} is {describe(certificate).subject}'s certificate, no authority's", hint=hint)
        return cls(certificate, key)

    def sign(
        self, request_pem: bytes, *, role: Role = Role.PARTY, days: int = 365, now: datetime | None = None
    ) -> Certificate:
        """Certifies the name in a request, after checking the request's own signature.

        Args:
            request_pem: made by `requests.make_request`; only its name, hosts and key are used.
            role: chosen by the signer, never by the request: a party's request must not make a server.
            days: validity, at most until the end of this authority's own.
            now: beginning of the validity, UTC; the machine's clock if None.
        """
        request = read_request(request_pem)
        _check_role(request.name, role)
        now = now or datetime.now(UTC)
        hint = "make a new authority, and have everyone's certificate signed by it: colonnade certs ca DIR"
        check_validity(self.certificate, "the authority's own certificate", now, hint=hint)
        return self._issue(request, role, days, now)

    def _issue(self, request: Request, role: Role, days: int, now: datetime) -> Certificate:
        begin, end = _period(days, now)
        # A certificate that is valid longer than its authority fails in the handshake, with an obscure error.
        end = min(end, self.certificate.not_valid_after_utc)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, request.name)])
        builder = _builder(
            subject=subject,
            issuer=self.certificate.subject,
            key=request.public_key,
            issuer_key=self.key.public_key(),
            begin=begin,
            end=end,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([_USAGE[role]]), critical=False)
        builder = builder.add_extension(alternative_names(request.name, request.hosts), critical=False)
        return builder.sign(self.key, hashes.SHA256())


def _check_role(name: str, role: Role) -> None:
    if role is Role.PARTY and name == names.SERVER:
        raise IdentityError(
            "the request is the server's, and was to be signed as a party's",
            hint="if it came from the server's operator, sign it with --role server",
        )
    if role is Role.PARTY:
        names.check_party_name(name)
    elif name != names.SERVER:
        raise IdentityError(
            f"the request is for {name!r}, and only {names.SERVER!r} can be signed as the server",
            hint="sign it with --role party, or have the server's request made in the name `server`",
        )


def _period(days: int, now: datetime) -> tuple[datetime, datetime]:
    if not 1 <= days <= 36500:
        raise IdentityError(f"a certificate cannot hold for {days} days", hint="give 1 to 36500 days")
    return now - CLOCK_SKEW, now + timedelta(days=days)


def _builder(
    *,
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number(), begin, end)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    return builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
