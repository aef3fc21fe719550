"""The certificate authority: one key, used only to sign certificates.

It certifies a name once, when a federation is set up. A signed certificate alone never admits a party
(`peers.verify_peer` compares the fingerprint that the roster pins), so the holder of this key can create names but no
members.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.common.crypto.pki import files, names
from colonnade.common.crypto.pki.certificates import (
    MALFORMED,
    Certificate,
    certificate_pem,
    check_validity,
    describe,
    fingerprint,
    host,
    is_authority,
    read_certificate,
)
from colonnade.common.crypto.pki.identity import PrivateKey, is_p256, key_pem, load_key, new_key, save_key
from colonnade.common.crypto.pki.names import LOOPBACK, SERVER, check_party_name
from colonnade.common.errors import IdentityError


@dataclass(frozen=True)
class Request:
    name: str
    hosts: tuple[x509.GeneralName, ...]
    public_key: ec.EllipticCurvePublicKey


def make_request(key: PrivateKey, name: str, hosts: Sequence[str] = ()) -> bytes:
    """A request in PEM for a certificate in `name`; only the server's carries `hosts`.

    Args:
        key: signs the request; it never leaves its machine.
        hosts: DNS names and IP addresses under which parties dial the server.
    """
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names.check_name(name))])
    alternatives = alternative_names(name, map(host, hosts))
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    request = builder.add_extension(alternatives, critical=False).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def read_request(pem: bytes) -> Request:
    """Reads an untrusted request, and checks its signature and all its fields."""
    try:
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
        subject = [str(part.value) for part in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        alternatives = list(_alternatives(request))
        key = request.public_key()
    except MALFORMED as error:
        raise IdentityError(f"this is not a certificate request in PEM: {error}", hint=_AGAIN) from error
    if not valid:
        raise IdentityError("the request was changed after it was signed", hint=_AGAIN)
    if not isinstance(key, ec.EllipticCurvePublicKey) or not is_p256(key):
        raise IdentityError("the request's key is not ECDSA on P-256", hint=_AGAIN)
    return Request(_requested_name(subject, alternatives), _requested_hosts(alternatives), key)


def alternative_names(name: str, hosts: Iterable[x509.GeneralName]) -> x509.SubjectAlternativeName:
    """The subject's alternative names: `NAME.colonnade`, then the hosts, each once. Only the server may have hosts."""
    others = list(dict.fromkeys(hosts))
    if others and name != names.SERVER:
        raise IdentityError(f"a certificate for {name!r} cannot carry host names", hint="only the server is dialled")
    return x509.SubjectAlternativeName([x509.DNSName(names.dns_name(name)), *others])


def _alternatives(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound as error:
        raise IdentityError("the request carries no NAME.colonnade", hint=_AGAIN) from error


def _requested_name(subject: list[str], alternatives: list[x509.GeneralName]) -> str:
    claimed = names.named_by(part.value for part in alternatives if isinstance(part, x509.DNSName))
    if len(subject) != 1 or claimed != subject:
        raise IdentityError(f"the request asks for {subject} and {claimed}, not for one name", hint=_AGAIN)
    return names.check_name(subject[0])


def _requested_hosts(alternatives: list[x509.GeneralName]) -> tuple[x509.GeneralName, ...]:
    hosts: list[x509.GeneralName] = []
    for part in alternatives:
        if not isinstance(part, x509.DNSName | x509.IPAddress):
            raise IdentityError(f"the request asks for {part.value!r}, which is no host", hint=_AGAIN)
        if isinstance(part, x509.IPAddress) or not names.named_by([part.value]):
            hosts.append(host(str(part.value)))
    return tuple(hosts)


_AGAIN = "have it made again and sent over a secure channel: colonnade certs request NAME DIR"


CLOCK_SKEW = timedelta(minutes=5)
"""A certificate's validity begins this long before its creation: the other machine's clock may be behind."""


class Role(StrEnum):
    """Permitted use of a certificate: to dial (a party), or to be dialled (the server)."""

    PARTY = "party"
    SERVER = "server"


_USAGE = {Role.PARTY: ExtendedKeyUsageOID.CLIENT_AUTH, Role.SERVER: ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True)
class Authority:
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
        certificate = read_certificate(files.read(path, own=True, hint=hint), str(path))
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
            request_pem: made by `make_request`; only its name, hosts and key are used.
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


_NEW = "name a folder that is new or empty"


def make_federation(
    folder: Path, names: Sequence[str], server_names: Sequence[str] = LOOPBACK, *, days: int = 30
) -> dict[str, str]:
    """Creates an authority, the server's identity and every party's; all of it appears at once, or nothing.

    Args:
        folder: new or empty; gets `ca/` (`key.pem`, `cert.pem`) and, for the server and each party, `NAME/` with
            `key.pem`, `cert.pem` and `ca.pem`. Only its owner can enter it.
        server_names: DNS names and IP addresses under which the server is dialled.

    Returns:
        The fingerprints by name, the server's first, as a roster pins them.
    """
    parties = [check_party_name(name) for name in names]
    if twice := sorted({name for name in parties if parties.count(name) > 1}):
        raise IdentityError(f"the party {twice[0]!r} is named twice", hint="give each party its own name")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise IdentityError(f"cannot make {folder}: it is in use", hint=_NEW)
    draft = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")
    try:
        files.make_folder(folder.parent)
        prints = _fill(draft, parties, server_names, days)
        draft.rename(folder)
    except OSError as error:
        raise IdentityError(f"cannot make {folder}: {error.strerror or error}", hint=_NEW) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return prints


def _fill(folder: Path, parties: Sequence[str], server_names: Sequence[str], days: int) -> dict[str, str]:
    authority = Authority.make(days=days)
    ca = certificate_pem(authority.certificate)
    folder.mkdir(mode=0o700)
    _put(folder / "ca", {"key.pem": key_pem(authority.key), "cert.pem": ca})
    prints = {}
    for name in (SERVER, *parties):
        role, hosts = (Role.SERVER, server_names) if name == SERVER else (Role.PARTY, ())
        key = new_key()
        certificate = authority.sign(make_request(key, name, hosts), role=role, days=days)
        pem = certificate_pem(certificate)
        _put(folder / name, {"key.pem": key_pem(key), "cert.pem": pem, "ca.pem": ca})
        prints[name] = fingerprint(certificate)
    return prints


def _put(folder: Path, contents: dict[str, bytes]) -> None:
    folder.mkdir(mode=0o700)
    for name, data in contents.items():
        files.create(folder / name, data, mode=files.PRIVATE if name == "key.pem" else files.PUBLIC)
