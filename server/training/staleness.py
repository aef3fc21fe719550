"""Turns of each party in an asynchronous run, and the age of its last embeddings."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor

from colonnade.server.training.context import ServerContext


class Staleness:
    """Turns by party, and the staleness of the embeddings that the server holds. Both are in the server-side state.

    The age of a party's embedding of a row is the number of turns, of any party, that the server has served since it
    came: the delay tau of the papers. Ages are taken when another party's turn uses them; rows that a party
    has never sent count as nothing.

    Args:
        ctx: of the server side.
        parties: in cohort order.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...]) -> None:
        self._indices = {party: index for index, party in enumerate(parties)}
        self._served: dict[str, int] = ctx.state.keep("served", lambda: dict.fromkeys(parties, 0))
        self._since = ctx.state.keep(
            "since", lambda: torch.zeros(len(parties), len(ctx.labels), dtype=torch.int32)
        )  # the number of the turn in which a row came, from 1; 0 for never
        self._ages: dict[str, list[float]] = ctx.state.keep("ages", lambda: {party: [0.0, 0.0] for party in parties})
        self._before = Counter(self._served)

    @staticmethod
    def kept(ctx: ServerContext) -> bool:
        """Returns True if this run's parties are asynchronous, so that staleness is counted."""
        return "served" in ctx.state

    def enter(self, party: str, batch: Tensor) -> None:
        """Enters a served turn of a party. `batch`: its row numbers, int64 (rows,)."""
        now = sum(self._served.values()) + 1
        since = self._since[:, batch]
        sent = since > 0
        for other, index in self._indices.items():
            if other != party and (count := int(sent[index].sum())):
                self._ages[other][0] += now * count - int(since[index].sum())  # never is 0 and adds nothing
                self._ages[other][1] += count
        self._since[self._indices[party], batch] = now
        self._served[party] += 1

    def within(self, party: str, ahead: int | None) -> bool:
        """Returns True if a party may take its next turn without being more turns than this ahead of the slowest."""
        return ahead is None or self._served[party] - min(self._served.values()) <= ahead

    def of_round(self) -> dict[str, int]:
        """Number of turns of each party since this was made."""
        return {party: count - self._before[party] for party, count in self._served.items()}

    def summary(self) -> dict[str, Any]:
        """By party: its turns, and the mean age of its embeddings when others' turns used them; null if none did."""
        ages = {party: round(total / count, 2) if count else None for party, (total, count) in self._ages.items()}
        return {party: {"turns": self._served[party], "staleness": ages[party]} for party in self._indices}
