"""Refusals of an alignment, in the same words at every member."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.errors import ConfigError, DataError

_ALIKE = (
    "all members must name the same column as key, written alike (17 and 00017 are two); federation.keys says what "
    "counts as the same"
)


def refuse_nothing(align: str, rows: int) -> None:
    if rows:
        return
    found = "the members' keys are not the same" if align == "sorted" else "no key is common to all members"
    said = f"federation.align = {align}: {found}"
    raise DataError(said, hint=_ALIKE, shared=said)


def may_be_empty(align: str, *, predicting: bool) -> bool:
    """True if an alignment may find nothing: tables of a service are replaced one after the other."""
    return predicting and align == "psi"


def refuse_other_sizes(align: str, members: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuses different numbers of rows where rows are only sorted; names and sizes have the server first."""
    for member, rows in zip(members, sizes, strict=True):
        if align == "sorted" and rows != sizes[0]:
            said = f"federation.align = sorted: {member} has {rows} keys, the server {sizes[0]}"  # all know the sizes
            hint = "all members need the same keys; or find the common ones with federation.align: psi"
            raise DataError(said, hint=hint, shared=said)


def refuse_aligned(align: str, what: str) -> None:
    """Refuses a feature (`what`) that reads the members' tables in their own order, without their alignment."""
    if align != "none":
        raise ConfigError(
            f"federation.align = {align}: {what} needs tables whose rows are in the same order",
            hint="put them in one order and set federation.align: none; docs/alignment.md says what works with keys",
        )
