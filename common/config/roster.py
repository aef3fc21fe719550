"""The roster: a federation's parties in their order, and the fingerprints of their certificates."""

from __future__ import annotations

from typing import Any

from colonnade.common.crypto.pki.certificates import check_fingerprint
from colonnade.common.crypto.pki.names import SERVER, check_party_name
from colonnade.common.errors import ConfigError, IdentityError, shown

LARGEST = 10_000
_HINT = "a number, a list of names, or names with their certificates' fingerprints"


def read_roster(value: Any) -> Any:
    """Reads `federation.parties`: name -> fingerprint, "" if it is given later.

    A number stands for party1, party2, ...; a list for names alone.

    Raises:
        ConfigError: the value has none of these forms.
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
    """Checks a roster and returns it with normalised fingerprints.

    Raises:
        ConfigError: it is empty, or a name or a fingerprint is invalid.
    """
    if not roster:
        raise ConfigError("federation.parties: there are none", hint=_HINT)
    try:
        return {check_party_name(name): check_pin(name, pin) for name, pin in roster.items()}
    except IdentityError as wrong:
        raise ConfigError(f"federation.parties: {wrong}", hint=wrong.hint) from None


def check_pin(name: str, value: str) -> str:
    """A member's normalised fingerprint, or "". Raises ConfigError."""
    try:
        return value and check_fingerprint(value)
    except IdentityError as wrong:
        key = "federation.server" if name == SERVER else f"federation.parties.{name}"
        raise ConfigError(f"{key}: {wrong}", hint=wrong.hint) from None
