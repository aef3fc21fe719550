"""Who said something, where it comes by way of somebody else: signatures by the keys of certificates."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.common.crypto.pki.certificates import fingerprint, name_of, read_certificate, short
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.pki.keys import parse_key
from colonnade.common.errors import ConfigError, IdentityError, PeerError


class ForgedError(PeerError):
    """What comes in somebody's name was not said by it."""


class Signer:
    """Signs in its own name.

    Args:
        identity: whose key and certificate; None (loopback without TLS) signs nothing.

    Attributes:
        certificate: for those who check, PEM; empty without an identity.
    """

    def __init__(self, identity: Identity | None) -> None:
        self.certificate = b"" if identity is None else identity.chain_pem
        self._key = None if identity is None else parse_key(identity.key_pem, str(identity.files.key))

    def sign(self, content: bytes) -> bytes:
        """ECDSA on P-256 with SHA-256, DER; empty without an identity."""
        return b"" if self._key is None else self._key.sign(content, ec.ECDSA(hashes.SHA256()))


class Verifier:
    """Checks what is said in somebody's name.

    Args:
        name: whose.
        certificate: as it was passed on, PEM.
        pin: the fingerprint that the roster has for that name.

    Raises:
        ForgedError: the certificate is not that which the roster pins.
        ConfigError: the roster pins none.
    """

    def __init__(self, name: str, certificate: bytes, pin: str) -> None:
        if not pin:
            where = "federation.server" if name == "server" else f"federation.parties.{name}"
            raise ConfigError(
                f"{where}: no certificate fingerprint",
                hint="parties check signatures by it: `colonnade certs show cert.pem` prints it",
            )
        try:
            read = read_certificate(certificate, f"what is passed on as that of {name!r}")
            named, shown = name_of(read), fingerprint(read)
        except IdentityError as bad:
            raise ForgedError(f"{name!r}: a bad certificate: {bad}", hint=bad.hint) from bad
        # Only a certificate that is pinned has its key read: another's may hold what no parser takes.
        if named != name or shown != pin or not isinstance(public := read.public_key(), ec.EllipticCurvePublicKey):
            raise ForgedError(
                f"{name!r} comes with the certificate {short(shown)} of {named!r}, the roster pins {short(pin)}",
                hint="the roster is out of date, or somebody in between puts a key of his own there",
            )
        self._name, self._public = name, public

    def check(self, what: str, content: bytes, signature: bytes) -> None:
        """Returns if the signature is this member's over `content`. Raises ForgedError, naming `what`."""
        try:
            self._public.verify(signature, content, ec.ECDSA(hashes.SHA256()))
        except InvalidSignature:
            raise ForgedError(
                f"{what} is not signed by {self._name!r}, or was for another session",
                hint="the server is not honest, or the two run different versions",
            ) from None
