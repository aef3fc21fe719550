from __future__ import annotations

from colonnade.common.config.federation import AlignChecks


def checks_of(agreed: AlignChecks, *, whole: bool) -> AlignChecks:
    """Checks of one alignment: as agreed for whole tables; signatures suffice for the few keys of a prediction."""
    return agreed if whole or agreed == "none" else "signed"


def one_time(checks: AlignChecks) -> bool:
    """True if an alignment needs fresh secrets.

    After an alignment a member can recognize planted keys in the lists that it passed on; under the same secrets it
    would recognize them again. Exponents with proofs are in another group, in which nothing is kept.
    """
    return checks in ("planted", "proofs")
