"""A party's rows: from a kept alignment if all members hold the same one, else from a new one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from colonnade.client.alignment.matching import Matching
from colonnade.client.alignment.reuse import PartyReuse, ReuseTerms
from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.messages import Settled
from colonnade.common.alignment.scratch import distinct
from colonnade.common.alignment.store import AlignmentRecord, KeptAlignment
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.errors import ContractError


class MakeMatching(Protocol):
    def __call__(self, *, terms: ReuseTerms, after: int, already: int, keep: Callable[[str, Tensor], None]) -> Matching:
        """Makes an alignment.

        Args:
            after: rounds used so far.
            already: number of common keys that are already known.
            keep: called with the alignment's number and our rows.
        """


@dataclass
class PartyFinding:
    reuse: PartyReuse
    matching: MakeMatching
    keeping: Keeping
    record: AlignmentRecord
    whole: bool = True
    reused: int = 0

    @property
    def keys(self) -> RowKeys:
        return self.record.keys

    async def __call__(self) -> Tensor:
        """Rows of this party that all members have, int64 (common,), in the common order; durable when this returns."""
        terms = await self.reuse()
        if terms.rows is None:
            keep = lambda number, rows: self._keep_new(matching, number, rows)  # noqa: E731
            matching: Matching = self.matching(terms=terms, after=terms.round, already=0, keep=keep)
            return await matching()
        self.reused = len(rows := terms.rows)
        if not terms.others:
            self.record.keep(terms.number, rows, self._identity(), self.keeping.terms)
            await self._settle(await self.reuse.confirm(len(rows)))
            return rows
        round = await self.reuse.confirm(len(rows))

        def keep_both(number: str, found: Tensor) -> None:
            both = torch.cat([rows, found])
            if not distinct(both, len(self.keys)):  # a budget counts a row's releases by its position
                raise ContractError(SERVER, "Positions", "positions", "rows besides the kept ones", "some again")
            self.record.keep(number, both)

        matching = self.matching(terms=terms, after=round, already=len(rows), keep=keep_both)
        return torch.cat([rows, await matching()])

    def _keep_new(self, matching: Matching, number: str, rows: Tensor) -> None:
        """Stores a new alignment, before we tell the server that we have it."""
        promised = matching.commitments
        identity = self.keeping.identity(matching.nonces, len(rows), promised) if self.whole else ""
        if identity:
            self.keeping.keep(self.keys, KeptAlignment(identity, rows, promised))
        self.record.keep(number, rows, identity, self.keeping.terms)

    def _identity(self) -> str:
        return self.reuse.kept.identity if self.whole and self.reuse.kept is not None else ""

    async def _settle(self, round: int) -> None:
        if await self.reuse.server.recv(Settled, round) is None:
            raise ContractError(SERVER, "Settled", "", "the end of the alignment", "a round of the protocol")
