"""Keys that members plant in their lists, which show if a list was changed on its way.

All members plant the same keys, which are in no table. Once raised and shuffled they look like any key that all members
have, so a member that changes elements or positions changes planted ones too: one element in twenty is planted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.alignment.keys import RowKeys, Values
from colonnade.common.errors import PeerError

_REST = 19  # keys to each planted one: 5 % of a list are planted
_HINT = (
    "align again with align_checks: proofs, which name a member that has raised a list otherwise; nothing of this "
    "alignment is kept (docs/alignment_checks.md, After a refusal)"
)
_HINT_OF_PLACES = (
    "no check names who has changed them, proofs neither; nothing of this alignment is kept (docs/alignment_checks.md, "
    "After a refusal)"
)


def planted_among(sizes: Sequence[int]) -> int:
    """Number of keys to plant in each list, so that they are 5 % of the longest."""
    return -(-max(sizes) // _REST)


def with_planted(keys: RowKeys, count: int) -> RowKeys:
    """A member's keys, followed by the planted ones."""
    return RowKeys(_WithPlanted(keys.values, count), keys.folder)


@dataclass(frozen=True)
class _WithPlanted:
    own: Values
    count: int

    def __getitem__(self, row: int, /) -> bytes:
        return self.own[row] if row < len(self.own) else _key(row - len(self.own))

    def __iter__(self) -> Iterator[bytes]:
        yield from self.own
        yield from map(_key, range(self.count))

    def __len__(self) -> int:
        return len(self.own) + self.count


def refuse_missing(found: int, planted: int) -> None:
    """Refuses a result that lacks planted keys: all members have them, so a list was changed."""
    if found < planted:
        said = f"a member has changed a list of the alignment: {planted - found} of {planted} planted keys are missing"
        raise PeerError(said, hint=_HINT, shared=said)


def without_planted(found: Tensor, rows: int, planted: int) -> tuple[Tensor, bytes]:
    """The own common rows, int64 (common,), and 32 bytes that are equal at all members if their orders are.

    Args:
        found: rows of the table with planted keys, each once, int64 (common + planted,).
        rows: number of rows of the table itself.
    """
    there = found >= rows
    refuse_missing(int(there.sum()), planted)
    places = torch.stack([torch.nonzero(there)[:, 0], found[there] - rows])
    return found[~there], hashlib.sha256(places.numpy().tobytes()).digest()


def refuse_other_places(members: Sequence[str], digests: Sequence[bytes]) -> None:
    """Refuses planted keys in other places than the server's: positions were changed on their way back."""
    if others := [name for name, digest in zip(members, digests, strict=True) if digest != digests[0]]:
        said = f"a member has changed positions of common rows: planted keys have other places at {', '.join(others)}"
        raise PeerError(said, hint=_HINT_OF_PLACES, shared=said)


def _key(number: int) -> bytes:
    return b"\xffplanted %d" % number  # no text in UTF-8 begins with this byte, so it is no key of a table
