"""Admission of parties: identity, configuration and rows, checked at every Hello."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from colonnade.common.config.federation import PINS, FederationConfig
from colonnade.common.contracts.registry import agreed_parts, is_part, other_version
from colonnade.common.conversation.parcels import WIRE_VERSION, Hello
from colonnade.common.crypto.pki.certificates import name_of
from colonnade.common.crypto.pki.revocation import RevocationList, verify_peer
from colonnade.common.errors import IdentityError, RefusedError, nearest
from colonnade.common.parsing.file import differences
from colonnade.common.version import VERSION, read_version, series, works_with

_MOST = 12  # keys named in a refusal


@dataclass(frozen=True)
class DataShape:
    rows: int
    official_test: int


class Admission:
    """Decides which parties may join a run.

    Args:
        run: the run's number; a party with checkpoints of another run is refused.
        secure: False on loopback only: certificates are not checked.
        purpose: what a Hello must state besides the agreed configuration.
    """

    def __init__(
        self,
        federation: FederationConfig,
        data_shape: DataShape,
        run: str,
        revoked: RevocationList,
        *,
        secure: bool,
        purpose: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._federation, self._data_shape, self._run = federation, data_shape, run
        self._revoked, self._secure = revoked, secure
        self._hashes = {**federation.stated(), **agreed_parts(federation), **purpose}

    def screen(self, pem: bytes | None) -> None:
        """Checks a connection's certificate before anything is read from it (PEM; None without TLS).

        Raises RefusedError if the certificate is not pinned in the roster, or is revoked; IdentityError if the
        revocation list is missing or unreadable, so that no party can be admitted.
        """
        if not self._secure:
            return
        if pem is None:
            raise RefusedError("no certificate was shown", hint="run it without --insecure")
        verify_peer(pem, _named(pem), self._federation.parties, self._revoked)

    def check(self, hello: Hello, pem: bytes | None) -> None:
        """Checks a Hello and its certificate (PEM; None without TLS). Raises RefusedError."""
        self._check_identity(hello.party, pem)
        self._check_agreement(hello)
        self._check_rows(hello)
        self._check_run(hello)

    def revoked(self) -> dict[str, str]:
        """Parties with a revoked certificate, and the reasons. Raises IdentityError if the list is unreadable."""
        self._revoked.refresh()
        reasons = {party: self._revoked.reason(pin) for party, pin in self._federation.parties.items()}
        return {party: reason for party, reason in reasons.items() if reason is not None}

    def _check_identity(self, party: str, pem: bytes | None) -> None:
        if self._secure:
            if pem is None:
                raise RefusedError(f"{party[:80]!r} showed no certificate", hint="run it without --insecure")
            verify_peer(pem, party, self._federation.parties, self._revoked)
        elif party not in self._federation.parties:
            near = nearest(party[:80], self._federation.parties)
            raise RefusedError(f"no party {party[:80]!r} is in the roster{near}")

    def _check_agreement(self, hello: Hello) -> None:
        party = hello.party
        if hello.federation != self._federation.id:
            raise RefusedError(f"{party!r} is of federation {hello.federation[:80]!r}, this is {self._federation.id!r}")
        if hello.wire != WIRE_VERSION or not works_with(VERSION, hello.version):
            ours, theirs = f"{VERSION} (wire {WIRE_VERSION})", f"{_shown(hello.version)} (wire {hello.wire})"
            raise RefusedError(
                f"{party!r} runs Colonnade {theirs}, the server {ours}",
                hint=f"install a version of one series at all members: {series(VERSION)} goes with the server",
            )
        differing = differences(self._hashes, hello.config)
        if "purpose" in differing:
            theirs, ours = (
                ("to answer", "trains") if "purpose" in hello.config else ("to train", "asks a trained model")
            )
            raise RefusedError(
                f"{party!r} has come {theirs}, and the server {ours}",
                hint="`colonnade client` goes with `server`, and `colonnade answer` with `predict` and `serve`",
            )
        if PINS in differing:
            named = [] if "parties" in differing else self._federation.other_pins(hello.config.get(PINS, ""))
            differing = sorted({*differing, *named} - ({PINS} - {*named}))
        if keys := [key for key in differing if not is_part(key)]:
            raise RefusedError(
                f"{party!r} has another federation section; it differs in {_some(keys)}",
                hint="give every member the same federation section",
            )
        if differing:
            raise RefusedError(
                other_version(differing[0], party, hello.config, self._hashes),
                hint="install the same version of the package at every member",
            )

    def _check_rows(self, hello: Hello) -> None:
        if self._federation.align != "none":
            return  # rows have keys; the common rows are found when every party is present
        ours = (self._data_shape.rows, self._data_shape.official_test)
        if (hello.rows, hello.official_test) != ours:
            raise RefusedError(
                f"{hello.party!r} has {_in_rows(hello.rows, hello.official_test)}, the labels have {_in_rows(*ours)}",
                hint="all members need the same rows in the same order; or keys, and federation.align: psi",
            )

    def _check_run(self, hello: Hello) -> None:
        if hello.run not in ("", self._run):
            raise RefusedError(
                f"{hello.party!r} holds records of run {hello.run[:80]}, this is run {self._run}",
                hint="resume that run at the server too, or choose another --out for the party",
            )


def _some(keys: Sequence[str]) -> str:
    more = len(keys) - _MOST
    return ", ".join(key[:80] for key in keys[:_MOST]) + (f" and {more} more" if more > 0 else "")


def _shown(version: str) -> str:
    return version if read_version(version) else repr(version[:80])


def claimed(pem: bytes | None) -> str:
    """The name in a certificate, whoever issued it; "unknown" if there is none."""
    with suppress(RefusedError):
        return "unknown" if pem is None else _named(pem)
    return "unknown"


@lru_cache(256)  # for a party that reconnects often
def _named(pem: bytes) -> str:
    try:
        return name_of(pem)
    except IdentityError as error:
        raise RefusedError(f"a bad certificate was shown: {error}", hint=error.hint) from error


def _in_rows(rows: int, official_test: int) -> str:
    return f"{rows} rows" + (f" ({official_test} of them a test part)" if official_test else "")
