"""Checks of the members' identities in a file: keys, certificates, pins and the revocation list."""

from __future__ import annotations

from pathlib import Path

from colonnade.client.member.identity import own_identity as party_identity
from colonnade.common.config.members import Config
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.certificates import short
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import IdentityError
from colonnade.common.parsing.error_attribution import whose
from colonnade.server.member.identity import own_identity as server_identity


def check_identities(config: Config, base: Path) -> None:
    """Checks the identities that would otherwise be refused when a member starts or joins.

    Members without an `identity` are skipped: `up` makes throw-away keys.

    Raises:
        ConfigError, IdentityError: a key or certificate cannot be used or is not the pinned one; names the member.
    """
    federation, server = config.federation, config.server
    named = [*config.parties.values(), *([] if server is None else [server])]
    if all(own.identity is None for own in named) and (server is None or server.revoked is None):
        return
    if server is not None and server.identity is not None:
        with whose(SERVER):
            _check_pin(server_identity(federation, server, base, secure=True), federation.server)
    if server is not None and server.revoked is not None:
        with whose(SERVER):
            RevocationList(base / server.revoked)
    for name, party in config.parties.items():
        if party.identity is not None:
            with whose(name):
                _check_pin(party_identity(name, federation, party, base), federation.parties[name])


def _check_pin(identity: Identity | None, pin: str) -> None:
    if identity is not None and pin and identity.fingerprint != pin:
        raise IdentityError(
            f"{identity.files.certificate} is the certificate {short(identity.fingerprint)}, "
            f"and the roster pins {short(pin)}",
            hint="pin what `colonnade certs show FILE` prints as the certificate's fingerprint; its key has another",
        )
