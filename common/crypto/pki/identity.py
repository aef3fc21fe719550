"""The identity of a process: its key, its certificate, and the authority shared with its peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.certificates import (
    Certificate,
    check_validity,
    fingerprint,
    is_authority,
    name_of,
    read_certificate,
    read_certificates,
)
from colonnade.common.crypto.pki.keys import key_pem, load_key
from colonnade.common.errors import IdentityError


@dataclass(frozen=True)
class IdentityFiles:
    key: Path
    certificate: Path
    ca: Path

    @classmethod
    def in_folder(cls, folder: Path) -> IdentityFiles:
        """The files as `colonnade certs` names them: `key.pem`, `cert.pem` and `ca.pem`."""
        return cls(folder / "key.pem", folder / "cert.pem", folder / "ca.pem")


@dataclass(frozen=True)
class Identity:
    """The checked identity of this process; TLS credentials are made from its PEM bytes."""

    name: str
    key_pem: bytes = field(repr=False)
    chain_pem: bytes = field(repr=False)
    ca_pem: bytes = field(repr=False)
    files: IdentityFiles

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.chain_pem)


def load_identity(where: Path | IdentityFiles, *, now: datetime | None = None) -> Identity:
    """Reads an identity and checks all of it, since a TLS handshake would fail with obscure errors.

    Args:
        where: the folder with `key.pem`, `cert.pem` and `ca.pem`, or the three files.
        now: time at which the certificates must be valid, UTC; the machine's clock if None.
    """
    paths = where if isinstance(where, IdentityFiles) else IdentityFiles.in_folder(where)
    key = load_key(paths.key, hint=f"make it: colonnade certs request NAME {paths.key.parent}")
    chain = files.read(paths.certificate, hint=_certificate_hint(paths))
    ca = files.read(paths.ca, hint=f"copy the authority's cert.pem to {paths.ca}; {_MAKE_CA}")
    certificate = read_certificate(chain, str(paths.certificate))
    name = name_of(certificate)
    if certificate.public_key() != key.public_key():
        raise IdentityError(
            f"the key {paths.key} does not belong to the certificate {paths.certificate}",
            hint="put the pair back together, or make a new request from this key and have it signed",
        )
    _check_signed(certificate, read_certificates(ca, str(paths.ca)), paths, now)
    renew = f"renew it: colonnade certs renew {paths.key.parent}, then have request.csr signed"
    check_validity(certificate, f"the certificate of {name!r} ({paths.certificate})", now, hint=renew)
    return Identity(name, key_pem(key), chain, ca, paths)


def _check_signed(
    certificate: Certificate, authorities: Sequence[Certificate], paths: IdentityFiles, now: datetime | None
) -> None:
    signer = next((ca for ca in authorities if signed_by(certificate, ca)), None)
    if signer is None:
        raise IdentityError(
            f"the certificate {paths.certificate} is not signed by the authority {paths.ca}",
            hint="ask the authority's owner for its cert.pem, or have your request signed by it",
        )
    check_validity(signer, f"the authority {paths.ca}", now, hint=f"ask for a new one; {_MAKE_CA}")


def signed_by(certificate: Certificate, authority: Certificate) -> bool:
    """True if an authority's key signed a certificate; does not check validity in time."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return is_authority(authority)


def _certificate_hint(paths: IdentityFiles) -> str:
    return (
        f"send {paths.key.parent / 'request.csr'} to the authority's owner, who runs: "
        f"colonnade certs sign request.csr --ca DIR --out cert.pem; the signed certificate goes to {paths.certificate}"
    )


_MAKE_CA = "it is made by: colonnade certs ca DIR"
