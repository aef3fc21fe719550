"""Authentication of forwarded messages: signatures by the keys of certificates."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.common.crypto.pki.certificates import fingerprint, name_of, read_certificate, short
from colonnade.common.crypto.pki.identity import Identity, parse_key
from colonnade.common.errors import ConfigError, IdentityError, PeerError


class ForgedError(PeerError):
    telling = None  # names of members, and certificates as they were forwarded


class Signer:
    """Signs in its own name; without an identity (loopback without TLS) nothing.

    Attributes:
        certificate: for the verifier, PEM; empty without an identity.
    """

    def __init__(self, identity: Identity | None) -> None:
        self.certificate = b"" if identity is None else identity.chain_pem
        self._key = None if identity is None else parse_key(identity.key_pem, str(identity.files.key))

    def sign(self, content: bytes) -> bytes:
        """ECDSA on P-256 with SHA-256, DER; empty without an identity."""
        return b"" if self._key is None else self._key.sign(content, ec.ECDSA(hashes.SHA256()))


class Verifier:
    """Checks the signatures of one member.

    Args:
        certificate: as forwarded, PEM.
        pin: the roster's fingerprint for that name.

    Raises:
        ForgedError: the certificate is not the one that the roster pins.
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
            read = read_certificate(certificate, f"the certificate forwarded for {name!r}")
            named, shown = name_of(read), fingerprint(read)
        except IdentityError as bad:
            raise ForgedError(f"{name!r}: a bad certificate: {bad}", hint=bad.hint) from bad
        # Only the key of a pinned certificate is read: another one may hold data that the parser rejects.
        if named != name or shown != pin or not isinstance(public := read.public_key(), ec.EllipticCurvePublicKey):
            raise ForgedError(
                f"{name!r} comes with the certificate {short(shown)} of {named!r}, the roster pins {short(pin)}",
                hint="the roster is out of date, or a key was substituted in transit",
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
