"""Refusals of an alignment, in the same words at every member."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.errors import ConfigError, DataError

_ALIKE = (
    "all members must name the same column as key, written alike (17 and 00017 are two); federation.keys says what "
    "counts as the same"
)


def refuse_nothing(align: str, rows: int) -> None:
    """Refuses an alignment without common rows.

    Args:
        align: value of `federation.align`.
        rows: number of common rows.

    Raises:
        DataError: there are none.
    """
    if rows:
        return
    found = "the members' keys are not the same" if align == "sorted" else "no key is common to all members"
    said = f"federation.align = {align}: {found}"
    raise DataError(said, hint=_ALIKE, shared=said)


def may_be_empty(align: str, *, predicting: bool) -> bool:
    """True if an alignment may find nothing: tables of a service are replaced one after the other."""
    return predicting and align == "psi"


def refuse_other_sizes(align: str, members: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuses members with different numbers of rows, if rows are only sorted.

    Args:
        align: value of `federation.align`.
        members, sizes: names and numbers of keys, the server first.

    Raises:
        DataError: a member has more or fewer than the server.
    """
    for member, rows in zip(members, sizes, strict=True):
        if align == "sorted" and rows != sizes[0]:
            said = f"federation.align = sorted: {member} has {rows} keys, the server {sizes[0]}"  # all know the sizes
            hint = "all members need the same keys; or find the common ones with federation.align: psi"
            raise DataError(said, hint=hint, shared=said)


def refuse_aligned(align: str, what: str) -> None:
    """Refuses a feature that reads the members' tables by itself, without their alignment.

    Args:
        align: value of `federation.align`.
        what: the feature, for the message; it needs rows in the same order.

    Raises:
        ConfigError: `align` is not none.
    """
    if align != "none":
        raise ConfigError(
            f"federation.align = {align}: {what} needs tables whose rows are in the same order",
            hint="put them in one order and set federation.align: none; docs/alignment.md says what works with keys",
        )
