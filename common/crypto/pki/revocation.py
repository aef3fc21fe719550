"""The local revocation list: certificates that are refused although they are signed and pinned.

It is a JSON file, so that an operator can read it and any tool can copy it:

    {"revoked": [{"fingerprint": "sha256:...", "serial": "...", "name": "...", "reason": "...",
                  "time": "2026-03-01T12:00:00+00:00"}]}

It fails closed: while a configured list is missing or broken, no certificate is accepted.

`verify_peer` checks the other end of a connection. TLS has checked that its certificate is signed by the shared
authority and that it holds the key. Here the certificate is compared with the one that the roster pins, so that the
holder of the authority's key cannot create peers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from colonnade.common.crypto.pki import files
from colonnade.common.crypto.pki.certificates import describe, fingerprint, name_of, short
from colonnade.common.crypto.pki.names import check_fingerprint
from colonnade.common.errors import IdentityError, RefusedError, nearest
from colonnade.common.run.files import state_of
from colonnade.common.run.json_text import parse_json


@dataclass(frozen=True)
class Revoked:
    """One revoked certificate; serial and name are for display, "" if only the fingerprint is known."""

    fingerprint: str
    serial: str
    name: str
    reason: str
    time: str


class RevocationList:
    """The revoked certificates in a file (none without a path), in force until `refresh` finds the file changed."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._entries: dict[str, Revoked] = {}
        self._seen: tuple[int, ...] | None = None
        self._fault: IdentityError | None = None
        self.refresh()

    @classmethod
    def create(cls, path: Path) -> RevocationList:
        """A new, empty list; refuses an existing file."""
        files.write(path, text({}), hint="add to it: colonnade certs revoke FILE --list LIST")
        return cls(path)

    def reason(self, certificate: bytes | str) -> str | None:
        """Why a certificate (PEM) or fingerprint is revoked, None if it is not.

        Raises IdentityError if the file was missing or broken when last read: its content is unknown.
        """
        if self._fault is not None:
            raise IdentityError(str(self._fault), hint=self._fault.hint)
        print_ = fingerprint(certificate) if isinstance(certificate, bytes) else certificate
        entry = self._entries.get(print_)
        return None if entry is None else entry.reason or "no reason given"

    def refresh(self) -> bool:
        """Reads the file again if it has changed, and returns whether it had. One `stat` if it had not.

        Raises IdentityError if it is missing or broken, as `reason` does until it is repaired.
        """
        if self.path is None:
            return False
        try:
            return self._reread(self.path)
        except IdentityError as fault:
            self._fault, self._seen = fault, None
            raise

    def revoke(self, certificate: bytes | str, reason: str, *, now: datetime | None = None) -> Revoked:
        """Adds a certificate (PEM) or fingerprint to the file, permanently; one writer at a time.

        A certificate that is revoked already keeps its entry, which is returned.
        """
        if self.path is None:
            raise IdentityError("there is no revocation list to add to", hint="name one: --list FILE")
        self.refresh()
        time = (now or datetime.now(UTC)).isoformat(timespec="seconds")
        entry = entry_for(certificate, reason, time)
        if entry.fingerprint not in self._entries:
            entries = {**self._entries, entry.fingerprint: entry}
            files.write(self.path, text(entries), overwrite=True)
            self.refresh()
        return self._entries[entry.fingerprint]

    def _reread(self, path: Path) -> bool:
        seen = _state(path)
        if seen is not None and seen == self._seen:
            return False
        # The state is from before the reading: a change in between is found at the next refresh.
        self._entries = _parse(files.read(path, own=True, hint=_hint(path), remedy=_COMPARE), path)
        self._seen, self._fault = seen, None
        return True


_COMPARE = "if others use this machine, compare it with the list that you have revoked certificates in"


def _state(path: Path) -> tuple[int, ...] | None:
    try:
        return state_of(path.stat())
    except OSError:
        return None  # reading it raises the error


def _parse(data: bytes, path: Path) -> dict[str, Revoked]:
    try:
        entries = [_entry(item) for item in parse_json(data)["revoked"]]
    except (ValueError, TypeError, KeyError, AttributeError, IdentityError) as error:
        raise IdentityError(f"the revocation list {path} is broken: {error}", hint=_hint(path)) from error
    return {entry.fingerprint: entry for entry in entries}


def _entry(item: dict[str, object]) -> Revoked:
    known = [entry_field.name for entry_field in fields(Revoked)]
    texts = {name: value for name, value in item.items() if name in known and isinstance(value, str)}
    if texts != item:
        raise ValueError(f"an entry has only the texts {', '.join(known)}, and this one is {item}")
    entry = Revoked(**{**dict.fromkeys(known, ""), **texts})
    return replace(entry, fingerprint=check_fingerprint(entry.fingerprint))


def entry_for(certificate: bytes | str, reason: str, time: str) -> Revoked:
    if isinstance(certificate, str):
        return Revoked(check_fingerprint(certificate), "", "", reason, time)
    card = describe(certificate)
    return Revoked(card.fingerprint, card.serial, card.subject, reason, time)


def text(entries: dict[str, Revoked]) -> bytes:
    listed = {"revoked": [asdict(entry) for entry in entries.values()]}
    return (json.dumps(listed, indent=2) + "\n").encode()


def _hint(path: Path) -> str:
    return f"repair it or copy it again; an empty one is: echo '{{\"revoked\": []}}' > {path}"


def verify_peer(certificate_pem: bytes, claimed_name: str, pinned: Mapping[str, str], revoked: RevocationList) -> None:
    """Returns if the certificate is the one that the roster pins for that name, and is not revoked.

    The list is refreshed, so that calling this again for an open stream is a complete re-check. Validity is left to
    TLS: a certificate that expires does not end a run in progress.

    Args:
        certificate_pem: from the handshake, never from a message.
        claimed_name: the name that the other end claims, or that was dialled (`server`).
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
