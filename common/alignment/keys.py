"""Who a member's rows are about: its keys, in the form in which members compare them."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from pydantic import Field

from common.errors import DataError
from common.section import Section


class KeysConfig(Section):
    """`federation.keys`: what counts as the same key, agreed by all members."""

    trim: bool = Field(default=True, description="without white space at both ends")
    case: Literal["fold", "keep"] = Field(default="keep", description="fold: upper and lower case are the same")
    unicode: Literal["nfkc", "keep"] = Field(default="nfkc", description="nfkc: other spellings of the same character")
    seeded: bool = Field(
        default=False, description="secrets and orders from the federation's seed: for tests, protects nothing"
    )

    def normal(self, key: str) -> str:
        """A key as it is compared."""
        key = self._composed(key.strip() if self.trim else key)
        # Folding may take characters apart, and composing may make white space.
        key = self._composed(key.casefold()) if self.case == "fold" else key
        return key.strip() if self.trim else key

    def _composed(self, key: str) -> str:
        return unicodedata.normalize("NFKC", key) if self.unicode == "nfkc" else key


@dataclass(frozen=True)
class Keys:
    """A member's keys, one a row, each once, as they are compared.

    Args:
        values: UTF-8, in the order of rows.
    """

    values: tuple[bytes, ...]

    @classmethod
    def of(cls, ids: Sequence[str] | None, config: KeysConfig, member: str) -> Keys:
        """Makes keys of what a table's column says. No message names a key.

        Args:
            ids: who each row is about; None where the source does not say.
            config: what counts as the same.
            member: whose they are, for messages.

        Raises:
            DataError: there are none, some are empty, or several rows have the same.
        """
        if not ids:
            raise DataError(
                f"{member}: its data have no keys, and federation.align goes by them",
                hint="name the column that says who a row is about: `id` of its source; or federation.align: none",
            )
        values = tuple(config.normal(key).encode(errors="surrogatepass") for key in ids)
        if empty := sum(not value for value in values):
            raise DataError(f"{member}: {empty} of {len(values)} rows have no key", hint="give them one, or drop them")
        if twice := len(values) - len(set(values)):
            how = f"trim: {config.trim}, case: {config.case}, unicode: {config.unicode}"
            raise DataError(
                f"{member}: {twice} of {len(values)} rows repeat the key of another row (compared with {how})",
                hint="keep one row a key; federation.keys says what counts as the same",
            )
        return cls(values)

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that change with any key or the order: for the member's own disk alone, since it can be guessed."""
        return _digest(self.values)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The row numbers by ascending key."""
        return tuple(sorted(range(len(self.values)), key=self.values.__getitem__))

    @cached_property
    def as_one(self) -> Keys:
        """One key that stands for the whole set, whatever the order of its rows."""
        return Keys((_digest(tuple(self.values[row] for row in self.order)),))

    def __len__(self) -> int:
        return len(self.values)


def _digest(values: Sequence[bytes]) -> bytes:
    digest = hashlib.sha256(len(values).to_bytes(8))
    for value in values:
        digest.update(len(value).to_bytes(8))
        digest.update(value)
    return digest.digest()
