"""Number of turns of each party in an asynchronous run, and the age of its last embeddings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from colonnade.server.training.context import ServerContext


class Staleness:
    """Turns by party, and staleness of the embeddings that the server holds; both are part of the state.

    The age of a party's embedding of a row is the number of turns, of any party, that the server has served since it
    arrived: the delay tau of the papers. Ages are measured when another party's turn uses the embedding. Rows that a
    party never sent do not count.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._indices = {party: index for index, party in enumerate(parties)}
        self._served: dict[str, int] = ctx.state.keep("served", lambda: dict.fromkeys(parties, 0))
        self._since = ctx.state.keep(
            "since", lambda: torch.zeros(len(parties), len(ctx.labels), dtype=torch.int32)
        )  # number of the turn in which a row arrived, from 1; 0 for never
        self._ages: dict[str, list[float]] = ctx.state.keep("ages", lambda: {party: [0.0, 0.0] for party in parties})
        self._before = Counter(self._served)

    @staticmethod
    def kept(ctx: ServerContext) -> bool:
        """True if the run is asynchronous, so that staleness is counted."""
        return "served" in ctx.state

    def enter(self, party: str, batch: Tensor) -> None:
        """Records a party's served turn. `batch`: row numbers, int64 (rows,)."""
        now = sum(self._served.values()) + 1
        since = self._since[:, batch]
        sent = since > 0
        for other, index in self._indices.items():
            if other != party and (count := int(sent[index].sum())):
                self._ages[other][0] += now * count - int(since[index].sum())  # unsent rows have 0 and add nothing
                self._ages[other][1] += count
        self._since[self._indices[party], batch] = now
        self._served[party] += 1

    def within(self, party: str, ahead: int | None) -> bool:
        """True if the party is at most `ahead` turns ahead of the slowest."""
        return ahead is None or self._served[party] - min(self._served.values()) <= ahead

    def of_round(self) -> dict[str, int]:
        """Number of turns of each party since this object was made."""
        return {party: count - self._before[party] for party, count in self._served.items()}

    def summary(self) -> dict[str, Any]:
        """By party: its turns, and its embeddings' mean age when other parties' turns used them (null if unused)."""
        ages = {party: round(total / count, 2) if count else None for party, (total, count) in self._ages.items()}
        return {party: {"turns": self._served[party], "staleness": ages[party]} for party in self._indices}
