"""A member's private key: ECDSA on P-256, which gRPC's TLS supports on all platforms."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.common.crypto.pki import files
from colonnade.common.errors import IdentityError

PrivateKey = ec.EllipticCurvePrivateKey


def new_key() -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def save_key(key: PrivateKey, path: Path, *, overwrite: bool = False) -> None:
    """Writes a key to `path` as PKCS8 PEM without a password, mode 0600."""
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

    A request may be altered in transit, so two persons compare this value over another channel.
    """
    der = key.public_bytes(
        serialization.Encoding.DER,
        serialization.PublicFormat.SubjectPublicKeyInfo,
    )
    return f"sha256:{hashlib.sha256(der).hexdigest()}"


_MAKE = "make a key and a request: colonnade certs request NAME DIR"
