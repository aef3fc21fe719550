"""The identity of a process: its key, its certificate, and the authority shared with its peers.

Keys are ECDSA on P-256, which gRPC's TLS supports on all platforms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.certificates import (
    Certificate,
    check_validity,
    fingerprint,
    is_authority,
    name_of,
    read_certificate,
    read_certificates,
    short,
)
from colonnade.common.errors import IdentityError

PrivateKey = ec.EllipticCurvePrivateKey


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def save_key(key: PrivateKey, path: Path, *, overwrite: bool = False) -> None:
    """Writes a key to `path` as PKCS8 PEM without a password, mode 0600. Refuses a folder that others can change."""
    files.refuse_shared(path.parent)
    hint = "keep it, or choose another folder: without its key a certificate is useless"
    files.write(path, key_pem(key), mode=files.PRIVATE, overwrite=overwrite, hint=hint)


def key_pem(key: PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def load_key(path: Path, *, hint: str = "") -> PrivateKey:
    return parse_key(files.read(path, private=True, hint=hint), str(path))


def parse_key(pem: bytes, where: str) -> PrivateKey:
    """Parses the key in `pem`; `where` names it in errors. Refuses a password, and anything but ECDSA on P-256."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise IdentityError(
            f"the private key {where} has a password",
            hint=f"take it off, processes start unattended: openssl pkey -in {where} -out new-key.pem",
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"{where} holds no private key in PEM", hint=_MAKE) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or not is_p256(key.public_key()):
        raise IdentityError(f"the private key {where} is not ECDSA on P-256", hint=_MAKE)
    return key


def is_p256(key: object) -> bool:
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP256R1)


def key_fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """`sha256:` and 64 hex digits over the public key (DER, SubjectPublicKeyInfo).

    Two people compare it over another channel, since a request may be altered in transit.
    """
    der = key.public_bytes(
        serialization.Encoding.DER,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


_MAKE = "make a key and a request: colonnade certs request NAME DIR"


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

    def refuse_other(self, pin: str) -> None:
        """Raises IdentityError if the roster pins another certificate; an empty pin is none."""
        if pin and self.fingerprint != pin:
            said = f"{self.files.certificate} is the certificate {short(self.fingerprint)}"
            hint = "pin what `colonnade certs show FILE` prints as the certificate's fingerprint; its key has another"
            raise IdentityError(f"{said}, and the roster pins {short(pin)}", hint=hint)


def load_identity(where: Path | IdentityFiles, *, now: datetime | None = None) -> Identity:
    """Reads an identity and checks all of it, since a TLS handshake would fail with obscure errors.

    Args:
        where: the folder with `key.pem`, `cert.pem` and `ca.pem`, or the three files.
        now: time at which the certificates must be valid, UTC; the machine's clock if None.
    """
    paths = where if isinstance(where, IdentityFiles) else IdentityFiles.in_folder(where)
    key = load_key(paths.key, hint=f"make it: colonnade certs request NAME {paths.key.parent}")
    chain = files.read(paths.certificate, own=True, hint=_certificate_hint(paths))
    ca = files.read(paths.ca, own=True, hint=f"copy the authority's cert.pem to {paths.ca}; {_MAKE_CA}")
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
