"""The server's own certificate, as its member and `colonnade check` read it."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import ServerConfig
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.errors import ConfigError, IdentityError


def own_identity(federation: FederationConfig, config: ServerConfig, base: Path, *, secure: bool) -> Identity | None:
    """The server's key and certificate; None on loopback without TLS.

    Raises ConfigError if there is no identity, if a party's fingerprint is missing, or if TLS is off and the address is
    not loopback; IdentityError if the certificate is another member's.
    """
    if not secure:
        _only_loopback(config.listen)
        return None
    if config.identity is None:
        raise ConfigError("server.identity: missing", hint="name the folder with key.pem, cert.pem and ca.pem")
    unpinned = [name for name, pin in federation.parties.items() if not pin]
    if unpinned:
        raise ConfigError(
            f"federation.parties.{unpinned[0]}: no certificate fingerprint",
            hint="`colonnade certs show cert.pem` prints it; `colonnade up` fills in throw-away ones",
        )
    identity = load_identity(base / config.identity)
    if identity.name != "server":
        raise IdentityError(
            f"{config.identity} holds the certificate of {identity.name!r}, the server needs its own",
            hint="point server.identity at the server's folder",
        )
    identity.refuse_other(federation.server)
    return identity


def _only_loopback(address: str) -> None:
    host = address.rpartition(":")[0].strip("[]")
    if host not in ("127.0.0.1", "localhost", "::1"):
        raise ConfigError(
            f"--insecure with {address}: plain connections are for loopback only",
            hint="listen on 127.0.0.1, or give the server an identity",
        )
