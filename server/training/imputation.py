"""Imputation of a late or absent party: zeros, its last output for a row, or its mean output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic, Literal, get_args

import torch
from torch import Tensor

from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import InputError, nearest
from colonnade.common.messaging.message import M, tensor_specs
from colonnade.server.training.context import MEANS, ServerContext

How = Literal["zero", "last", "skip"]


LAST, SENT = "last embeddings", "sent embeddings"
"""Names in the state: every party's last embeddings by row, and which rows it has sent at all."""


def sent(ctx: ServerContext, last: Tensor) -> Tensor:
    """The state's mask of embeddings that were sent, Boolean (parties, rows).

    Runs of 0.2.0 stored no mask: there, rows that are not all zeros count as sent.
    """
    return ctx.state.keep(SENT, lambda: last.any(dim=2))


class StandIn:
    """A round's embeddings or logits in roster order; missing ones are imputed.

    Args:
        how: zero: zeros. last: the party's last embedding of the same rows, zeros if it sent none; the state keeps a
            copy of every party's embeddings. skip: the round is left out, except the last, which is evaluated.

    Raises ValueError if `how` is none of these.
    """

    def __init__(self, ctx: ServerContext, parties: tuple[str, ...], width: int, how: How) -> None:
        if how not in get_args(How):
            raise ValueError(f"StandIn(how={how!r}): unknown{nearest(str(how), get_args(How))}; zero, last or skip")
        self._ctx, self._parties, self.width, self._how = ctx, parties, width, how
        shape = (len(parties), len(ctx.labels), width)
        self._last = ctx.state.keep(LAST, lambda: torch.zeros(shape)) if how == "last" else None
        self._sent = None if self._last is None else sent(ctx, self._last)

    def zeros(self, responses: Mapping[str, Tensor], rows: int) -> list[Tensor]:
        """h_1 .. h_M, each float32 (rows, width); zeros for missing parties."""
        nothing = torch.zeros(rows, self.width)
        return [responses.get(party, nothing) for party in self._parties]

    def fill(self, responses: Mapping[str, Tensor], batch: Tensor, round: int) -> list[Tensor] | None:
        """h_1 .. h_M of a training batch (int64), each float32 (rows, width); None if the round is left out."""
        complete = len(responses) == len(self._ctx.schedule.participants(round))
        if not responses or (self._how == "skip" and not complete and round < self._ctx.schedule.rounds):
            return None
        if self._last is None or self._sent is None:
            return self.zeros(responses, len(batch))
        for index, party in enumerate(self._parties):
            if party in responses:
                self._last[index, batch] = responses[party]
                self._sent[index, batch] = True
        return list(self._last[:, batch])


class Absence(Generic[M]):
    """One evaluation of the validation rows, repeated with each party in turn replaced by its mean output.

    Every evaluation stores the means of the parties that answered any of its blocks. A straggler that misses the
    run's last evaluation is therefore replaced by the mean of the last one that it answered.
    """

    def __init__(self, ctx: ServerContext, kind: type[M]) -> None:
        self._ctx, ((self._field, _),) = ctx, tensor_specs(kind)
        self._blocks: list[tuple[Responses[M], Tensor]] = []
        self._sums: dict[str, tuple[Tensor, int]] = {}

    def add(self, responses: Responses[M], block: Tensor, *, again: bool) -> None:
        """Adds a block (row numbers, int64); `again` keeps the responses, for `scores`."""
        for party, response in responses.items():
            total, rows = self._sums.get(party, (torch.tensor(0.0), 0))
            self._sums[party] = total + getattr(response, self._field).sum(0), rows + len(block)
        if again:
            self._blocks.append((responses, block))

    def means(self) -> dict[str, Tensor]:
        """Mean output by party, float32 (width,); also stored in the state, for predictions."""
        found = {party: total / rows for party, (total, rows) in self._sums.items()}
        kept: dict[str, Tensor] = self._ctx.state.keep(MEANS, dict)
        kept.update(found)
        return found

    def scores(self, predict: Callable[[Responses[M], Tensor], Tensor]) -> dict[str, float]:
        """By party: the joint model's score when the party is replaced by its mean."""
        return {party: self._score(predict, party, mean) for party, mean in self.means().items()}

    def _score(self, predict: Callable[[Responses[M], Tensor], Tensor], party: str, mean: Tensor) -> float:
        score = self._ctx.score()
        for responses, block in self._blocks:
            changed = responses
            if party in responses:
                stands: dict[str, Any] = {self._field: mean.expand(len(block), -1), "packed": {}}
                message = replace(responses[party], **stands)
                changed = replace(responses, answers={**responses.answers, party: message})
            score.add(predict(changed, block), self._ctx.labels[block])
        return score.metrics[self._ctx.plain_metric]


class Standing:
    """Replacements of absent parties from the state of a finished run.

    They are a party's mean output, or if `historical` its last output for the same row, where there is one. Raises
    InputError if the run stored no replacement.
    """

    def __init__(self, ctx: ServerContext, absent: tuple[str, ...], *, historical: bool) -> None:
        self._ctx, self._names = ctx, ctx.federation.names
        means: Mapping[str, Tensor] = ctx.state.keep(MEANS, dict)
        if lacking := [party for party in absent if party not in means]:
            raise InputError(
                f"{', '.join(lacking)}: absent, and the run has stored no mean of its outputs",
                hint="evaluations of validation rows in the clear keep it of parties that respond; start the party",
            )
        self._means = {party: means[party] for party in absent}
        self._kept = self._recall(ctx, absent) if historical else None

    def _recall(self, ctx: ServerContext, absent: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """The last embeddings, and the mask of those that were sent."""
        width = len(self._means[absent[0]])
        last = ctx.state.keep(LAST, lambda: torch.zeros(len(self._names), len(ctx.labels), width))
        mask = sent(ctx, last)
        if not mask.any():
            raise InputError(
                f"--absent historical: the run has kept nothing that {', '.join(absent)} has said",
                hint="runs with federation.protocol.missing: last keep it; take --absent mean",
            )
        return last, mask

    def of(self, party: str, rows: Tensor) -> Tensor:
        """Replacement of an absent party's outputs for these positions: int64 (rows,) -> float32 (rows, width)."""
        values = self._means[party].expand(len(rows), -1)
        if self._kept is None:
            return values
        last, mask = (kept[self._names.index(party)] for kept in self._kept)
        then = self._ctx.trained_as(rows)
        known = (mask[then] & (then >= 0)).unsqueeze(1)
        return torch.where(known, last[then], values)  # the mean where the party never sent the row
