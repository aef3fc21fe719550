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
from colonnade.common.alignment.messages import Settled
from colonnade.common.alignment.scratch import distinct
from colonnade.common.alignment.store import AlignmentRecord
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

    async def __call__(self) -> Tensor:
        """Rows of this party that all members have, int64 (common,), in the common order; durable when this returns."""
        terms = await self.reuse()
        if terms.rows is None:
            keep = lambda number, rows: self.keeping.keep(  # noqa: E731  # before we tell the server that we have it
                self.record, number, rows, matching.nonces, matching.commitments, whole=self.whole
            )
            matching: Matching = self.matching(terms=terms, after=terms.round, already=0, keep=keep)
            return await matching()
        self.reused = len(rows := terms.rows)
        if not terms.others:
            identity = self.reuse.kept.identity if self.whole and self.reuse.kept is not None else ""
            self.record.keep(terms.number, rows, identity, self.keeping.terms)
            if await self.reuse.server.recv(Settled, await self.reuse.confirm(len(rows))) is None:
                raise ContractError(SERVER, "Settled", "", "the end of the alignment", "a round of the protocol")
            return rows
        round = await self.reuse.confirm(len(rows))

        def keep_both(number: str, found: Tensor) -> None:
            both = torch.cat([rows, found])
            if not distinct(both, len(self.record.keys)):  # a budget counts a row's releases by its position
                raise ContractError(SERVER, "Positions", "positions", "rows besides the kept ones", "some again")
            self.record.keep(number, both)

        matching = self.matching(terms=terms, after=round, already=len(rows), keep=keep_both)
        return torch.cat([rows, await matching()])
