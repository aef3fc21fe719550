"""The federation's name, from which commands make folder names, and its roster: parties in order, with fingerprints."""

from __future__ import annotations

from typing import Any

from colonnade.common.crypto.pki.names import SERVER, check_fingerprint, check_party_name
from colonnade.common.errors import ConfigError, IdentityError, shown

_LONGEST = 100  # bytes in UTF-8: a folder's name is the id, a member's name of 63 and a time, and holds 255
_BETWEEN = " ._-"
LARGEST = 10_000
_HINT = "a number, a list of names, or names with their certificates' fingerprints"


def read_roster(value: Any) -> Any:
    """Reads `federation.parties`: name -> fingerprint, "" if it is given later.

    A number stands for party1, party2, ...; a list gives names alone.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= LARGEST:
            raise ConfigError(f"federation.parties = {value}: expected 1 to {LARGEST}", hint=_HINT)
        width = len(str(value))
        return {f"party{number:0{width}}": "" for number in range(1, value + 1)}
    if isinstance(value, list):
        seen = set[str]()
        for place, name in enumerate(value):
            if not isinstance(name, str):
                raise ConfigError(f"federation.parties.{place} = {name!r}: expected a name", hint=_HINT)
            if name in seen:
                raise ConfigError(f"federation.parties: {name!r} is listed twice", hint="give each party its own name")
            seen.add(name)
        return dict.fromkeys(value, "")
    if not isinstance(value, dict):
        raise ConfigError(f"federation.parties{shown(value)}: expected a roster", hint=_HINT)
    # The fingerprint of a name without a value is given later.
    return {name: "" if pin is None else pin for name, pin in value.items()}


def check_roster(roster: dict[str, str]) -> dict[str, str]:
    """Checks a roster and returns it with normalised fingerprints."""
    if not roster:
        raise ConfigError("federation.parties: there are none", hint=_HINT)
    try:
        return {check_party_name(name): check_pin(name, pin) for name, pin in roster.items()}
    except IdentityError as wrong:
        raise ConfigError(f"federation.parties: {wrong}", hint=wrong.hint) from None


def check_pin(name: str, value: str) -> str:
    """A member's normalised fingerprint, or ""."""
    try:
        return value and check_fingerprint(value)
    except IdentityError as wrong:
        key = "federation.server" if name == SERVER else f"federation.parties.{name}"
        raise ConfigError(f"{key}: {wrong}", hint=wrong.hint) from None


def check_id(value: str) -> str:
    """Returns `federation.id` if it may name folders: 1 to 100 bytes of letters, digits and ` ._-`, alphanumeric at
    both ends.

    Runs of versions before 0.3 may have other ids; they are read and resumed in place, and no folder is named after
    them.
    """
    if not _names_folder(value):
        raise ConfigError(
            f"federation.id = {value[:60]!r}{'...' if len(value) > 60 else ''}: it names folders, and cannot",
            hint=f"use up to {_LONGEST} letters, digits, spaces, ., _ and -, with a letter or a digit at both ends",
        )
    return value


def _names_folder(value: str) -> bool:
    inner = all(each.isalnum() or each in _BETWEEN for each in value)
    ends = value[:1].isalnum() and value[-1:].isalnum()
    return inner and ends and len(value.encode(errors="surrogatepass")) <= _LONGEST
