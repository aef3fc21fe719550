"""A party's own certificate, as its member and `colonnade check` read it."""

from __future__ import annotations

from pathlib import Path

from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.crypto.pki.identity import Identity, load_identity
from colonnade.common.errors import ConfigError, IdentityError


def own_identity(name: str, federation: FederationConfig, config: PartyConfig, base: Path) -> Identity:
    """A party's key and certificate. Raises ConfigError if none is configured or the server's fingerprint is missing,
    IdentityError if it is unusable, or another member's.
    """
    if config.identity is None:
        hint = "name the folder with key.pem, cert.pem and ca.pem"
        raise ConfigError(f"parties.{name}.identity: missing", hint=hint)
    identity = load_identity(base / config.identity)
    if identity.name != name:
        raise IdentityError(
            f"this is the configuration of {name!r}, and {config.identity} holds the certificate of {identity.name!r}",
            hint="give every party its own configuration and its own identity",
        )
    if not federation.server:
        hint = "`colonnade certs show cert.pem` prints it at the server"
        raise ConfigError("federation.server: no fingerprint of the server's certificate", hint=hint)
    identity.refuse_other(federation.parties[name])
    return identity
