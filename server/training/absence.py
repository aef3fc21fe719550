"""Mean outputs of the parties, and scores of the joint model without a party."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Generic

import torch
from torch import Tensor

from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import InputError
from colonnade.common.messaging.message import M, tensor_specs
from colonnade.server.training.context import MEANS, ServerContext
from colonnade.server.training.imputation import LAST, sent


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
            self._sums[party] = total + self._of(response).sum(0), rows + len(block)
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

    def _of(self, response: M) -> Tensor:
        value: Tensor = getattr(response, self._field)
        return value


class Standing:
    """Replacements of absent parties, from the state of a finished run.

    Args:
        historical: their last outputs for the same row, where there are some; else their means.

    Raises InputError if the run stored nothing to replace a party with.
    """

    def __init__(self, ctx: ServerContext, absent: tuple[str, ...], *, historical: bool) -> None:
        self._ctx, self._names = ctx, ctx.federation.names
        means: Mapping[str, Tensor] = ctx.state.keep(MEANS, dict)
        if lacking := [party for party in absent if party not in means]:
            raise InputError(
                f"{', '.join(lacking)}: absent, and the run has kept no mean of what it says",
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
