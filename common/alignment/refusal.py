"""Why an alignment cannot go on, in the same words at every member."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.errors import ConfigError, DataError

_ALIKE = (
    "all members must name the same column as key, written alike (17 and 00017 are two); federation.keys says what "
    "counts as the same"
)


def refuse_nothing(align: str, rows: int) -> None:
    """Refuses an alignment that has found nothing.

    Args:
        align: how it was done.
        rows: that are common.

    Raises:
        DataError: there are none.
    """
    if rows:
        return
    found = "the members' keys are not the same" if align == "sorted" else "no key is common to all members"
    said = f"federation.align = {align}: {found}"
    raise DataError(said, hint=_ALIKE, told=said)


def refuse_other_sizes(align: str, members: Sequence[str], sizes: Sequence[int]) -> None:
    """Refuses, where rows are to be sorted alone, members that have not equally many.

    Args:
        align: how rows are aligned.
        members, sizes: who has how many keys, the server first.

    Raises:
        DataError: somebody has more or fewer than the server.
    """
    for member, rows in zip(members, sizes, strict=True):
        if align == "sorted" and rows != sizes[0]:
            said = f"federation.align = sorted: {member} has {rows} keys, the server {sizes[0]}"  # all know the sizes
            hint = "all members need the same keys; or find the common ones with federation.align: psi"
            raise DataError(said, hint=hint, told=said)


def refuse_aligned(align: str, what: str) -> None:
    """Refuses what reads the members' tables by itself and does not know which of their rows count.

    Args:
        align: how rows are aligned.
        what: wants them in the same order, for the message.

    Raises:
        ConfigError: they are not.
    """
    if align != "none":
        raise ConfigError(
            f"federation.align = {align}: {what} needs tables whose rows are in the same order",
            hint="bring them into one order and set federation.align: none; docs/alignment.md says what goes with keys",
        )
