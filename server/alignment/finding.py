"""The server's rows: from a stored alignment if all members hold the same one, else from a new one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import Settled
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import Cohort
from colonnade.server.alignment.relay import Aligning
from colonnade.server.alignment.reuse import Agreed, ServerReuse


class MakeAligning(Protocol):
    def __call__(
        self, *, keys: RowKeys, agreed: Agreed, after: int, already: int, keep: Callable[[str, Tensor], None]
    ) -> Aligning:
        """Aligns `keys` after round `after`; `already` rows are known to be common, and `keep` receives the result."""


@dataclass(frozen=True)
class KeptPart:
    """The server's keys that a stored alignment contains.

    Args:
        rows: the server's rows in the alignment's order, int64.
        wanted: their positions in the alignment, int64; None for all of it.
    """

    identity: str
    rows: Tensor
    wanted: Tensor | None = None


def aligned_anew(without: Sequence[str]) -> str:
    """Why rows are aligned anew although some members hold an alignment of them."""
    return f"rows are aligned anew: {', '.join(without)} did not keep the alignment that other members hold"


@dataclass
class ServerFinding:
    """One search for the server's rows.

    Args:
        federation: the agreed section, with the present parties.
        aligning: makes a new alignment.
        part: what the server would use of a stored alignment; None if it has none.
        whole: True if the result is stored for other runs.

    Attributes:
        reused: number of rows from the stored alignment.
        without: members that do not hold the alignment that others hold.
    """

    federation: FederationConfig
    cohort: Cohort
    aligning: MakeAligning
    keeping: Keeping
    record: AlignmentRecord
    part: KeptPart | None = None
    whole: bool = True
    reused: int = 0
    without: tuple[str, ...] = ()

    async def __call__(self) -> Tensor:
        """The server's rows that all members have, int64 (common,), in the common order; they are then on its disk."""
        part, keys = self.part, self.record.keys
        others = self._others()
        reuse = ServerReuse(self.federation, self.cohort, others=len(others))
        if part is not None:
            reuse.identity, reuse.rows, reuse.wanted = part.identity, len(part.rows), part.wanted
        agreed = await reuse()
        if part is None or not agreed.number:
            if self.whole or part is not None:  # else the server requests none of the stored rows
                self.without = agreed.without
            keep = lambda number, rows: self.keeping.keep(  # noqa: E731
                self.record, number, rows, aligning.nonces, aligning.commitments, whole=self.whole
            )
            aligning: Aligning = self.aligning(keys=keys, agreed=agreed, after=agreed.round, already=0, keep=keep)
            return await aligning()
        self.reused = len(rows := part.rows)
        round = await reuse.confirmed()
        if not len(others):
            self.record.keep(agreed.number, rows, part.identity if self.whole else "", self.keeping.terms)
            await self.cohort.broadcast(Settled(round))
            return rows
        left = RowKeys(tuple(keys.values[row] for row in others.tolist()), keys.folder)

        def keep_both(number: str, found: Tensor) -> None:
            self.record.keep(number, torch.cat([rows, others[found]]))

        found = await self.aligning(keys=left, agreed=agreed, after=round, already=len(rows), keep=keep_both)()
        return torch.cat([rows, others[found]])

    def _others(self) -> Tensor:
        """The server's rows that the stored alignment lacks and a new one must cover, int64."""
        if self.part is None or self.whole:
            return torch.empty(0, dtype=torch.int64)
        known = set(self.part.rows.tolist())
        return torch.tensor([row for row in range(len(self.record.keys)) if row not in known], dtype=torch.int64)
