"""Alignment of rows: `federation.keys`, agreed by all members, and `alignments` of a member, which is local.

Its refusals have the same words at every member.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import Field

from colonnade.common.errors import ConfigError, DataError
from colonnade.common.section import Section

MOST_PARTS = 8  # maximum columns of a key


def joined(parts: Sequence[str]) -> str:
    """The key of several parts, as a JSON list without spaces."""
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def taken_apart(key: str) -> list[str]:
    """The parts of a joined key; none if it is no JSON list of texts."""
    try:
        parts = json.loads(key, strict=False)
    except (ValueError, RecursionError):
        return []
    return parts if isinstance(parts, list) and all(isinstance(part, str) for part in parts) else []


class KeysConfig(Section):
    """`federation.keys`: rules by which two keys count as equal, agreed by all members.

    A key of several parts, each a column, is the text of a JSON list of them, which separates them whatever they hold.
    """

    parts: int = Field(
        default=1, ge=1, le=MOST_PARTS, description="columns that make a key: every member names as many as its `key`"
    )
    trim: bool = Field(default=True, description="removes white space at both ends")
    case: Literal["fold", "keep"] = Field(default="keep", description="fold: upper and lower case are the same")
    unicode: Literal["nfkc", "keep"] = Field(default="nfkc", description="nfkc: other spellings of the same character")
    seeded: bool = Field(
        default=False, description="secrets and orders from the federation's seed: for tests, protects nothing"
    )

    def normal(self, key: str) -> str:
        """A key in the form in which keys are compared; "" if it, or one of its parts, is empty or missing."""
        if self.parts == 1:
            return self._part(key)
        parts = [self._part(part) for part in taken_apart(key)]
        return joined(parts) if len(parts) == self.parts and all(parts) else ""

    def _part(self, key: str) -> str:
        if key.isascii():  # no other spelling of it exists, and folding makes no white space
            key = key.strip() if self.trim else key
            return key.casefold() if self.case == "fold" else key
        key = self._composed(key.strip() if self.trim else key)
        # Case folding may decompose characters, and composing may create white space.
        key = self._composed(key.casefold()) if self.case == "fold" else key
        return key.strip() if self.trim else key

    def normals(self, keys: Sequence[str]) -> list[str]:
        """`normal` of several keys, in a tenth of the time if all are ASCII."""
        together = "".join(keys)
        if self.parts > 1 or not together.isascii():
            return [self.normal(key) for key in keys]
        # ASCII is composed already, and folding its case makes neither white space nor anything to compose.
        white = self.trim and together.split(None, 1) != [together]
        trimmed = map(str.strip, keys) if white else keys
        return list(map(str.casefold, trimmed) if self.case == "fold" else trimmed)

    def _composed(self, key: str) -> str:
        return unicodedata.normalize("NFKC", key) if self.unicode == "nfkc" else key


class AlignmentsConfig(Section):
    """`alignments`: kept alignments and exponents of a member, and what others may test in a day."""

    folder: Path | None = Field(
        default=None,
        description="folder of kept alignments, relative to the file, with a folder for each member in it; left out, "
        "COLONNADE_ALIGNMENTS or `.alignments` beside the runs",
    )
    days: float = Field(
        default=30,
        ge=0,
        le=3650,
        description="days after which a kept alignment, or a secret exponent, is removed; 0 keeps none",
    )
    per_day: int | None = Field(
        default=100,
        ge=1,
        description="most alignments in 24 hours: of a party through one server, of the server with any party; over "
        "all runs and predictions; null for no limit",
    )
    rows_per_day: int | None = Field(
        default=50_000_000,
        ge=1,
        description="most keys of others in all alignments of 24 hours: at a party of all other members through one "
        "server, at the server of any party; over all runs and predictions; null for no limit",
    )


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


def few_common(rows: int, sizes: Sequence[int]) -> str | None:
    """A warning if the members have fewer than half of the smallest table's keys in common; None for no warning."""
    if 2 * rows >= min(sizes):
        return None
    return (
        f"only {rows} keys are common to all, and the smallest table has {min(sizes)}; if you expected more, compare "
        "how the members write their keys, and the dates of their exports"
    )


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
