"""The checks of an alignment: what each of them needs."""

from __future__ import annotations

from colonnade.common.config.federation import AlignChecks


def checks_of(agreed: AlignChecks, *, whole: bool) -> AlignChecks:
    """The checks of one alignment: of whole tables as agreed, of the few keys of a prediction their signatures."""
    return agreed if whole or agreed == "none" else "signed"


def one_time(checks: AlignChecks) -> bool:
    """True if an alignment needs secrets of its own.

    After an alignment a member can tell planted keys in the lists that it has passed on: in another one with the same
    secrets it would know them. Exponents with proofs are of another group, and nothing is kept in it.
    """
    return checks in ("planted", "proofs")
