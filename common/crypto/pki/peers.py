"""Verification of the other end of a connection: its identity, and its revocation.

TLS has already checked that the certificate is signed by the shared authority and that the other end holds its key.
Here the certificate itself is compared with the one that the roster pins, so that the holder of the authority's key
cannot create peers.
"""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.common.crypto.pki.certificates import fingerprint, name_of, short
from colonnade.common.crypto.pki.revocation import RevocationList
from colonnade.common.errors import IdentityError, RefusedError, nearest


def verify_peer(certificate_pem: bytes, claimed_name: str, pinned: Mapping[str, str], revoked: RevocationList) -> None:
    """Returns if the certificate is the one that the roster pins for that name, and is not revoked.

    The list is refreshed, so that calling this again for an open stream is a complete re-check. Validity is left to
    TLS: a certificate that expires does not end a run in progress.

    Args:
        certificate_pem: from the handshake, never from a message.
        claimed_name: the name that the other end claims, or that was dialled (`server`).
        pinned: fingerprints by name.
        revoked: this end's own list.

    Raises:
        RefusedError: the name is unknown, the certificate is another member's, not the pinned one, or revoked.
        IdentityError: our own revocation list is missing or broken, so no peer is accepted.
    """
    if claimed_name not in pinned:
        raise RefusedError(
            f"no party {claimed_name[:80]!r} is in the roster{nearest(claimed_name[:80], pinned)}",
            hint="add its name and fingerprint to the roster, or start it under its own name",
        )
    named, shown = _read(certificate_pem, claimed_name)
    if named != claimed_name:
        raise RefusedError(
            f"the certificate of {named!r} was shown by one who claims to be {claimed_name!r}",
            hint="start each party with its own certificate",
        )
    revoked.refresh()
    if (reason := revoked.reason(shown)) is not None:
        raise RefusedError(
            f"the certificate {short(shown)} of {claimed_name!r} is revoked: {reason}",
            hint="make a new key and request, have it signed, and put its fingerprint into the roster",
        )
    if shown != pinned[claimed_name]:
        raise RefusedError(
            f"{claimed_name!r} showed the certificate {short(shown)}, "
            f"and the roster pins {short(pinned[claimed_name])}",
            hint="if it was renewed, put the new fingerprint into every roster (colonnade certs show FILE)",
        )


def _read(certificate_pem: bytes, claimed_name: str) -> tuple[str, str]:
    try:
        return name_of(certificate_pem), fingerprint(certificate_pem)
    except IdentityError as error:
        raise RefusedError(f"{claimed_name!r} showed a bad certificate: {error}", hint=error.hint) from error
