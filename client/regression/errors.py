"""Standard errors of a party's own coefficients, given the other parties' part. The box: common/protocols/hetero_lr.py.

Without a penalty the covariance of all coefficients is the inverse of the Hessian Z' W Z, over Z = [1, X] of all
parties and the second derivatives W of the loss. A party is returned the sums of W over products of two of its own
columns, so that it has its own block of the Hessian. The inverse of that is the covariance if the other parties' part
is known, with the intercept free: that of statsmodels if one party has all columns. Otherwise it is too small wherever
other parties' columns tell what this one's do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

import numpy as np
import torch

from colonnade.client.privacy.answers import Answers
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear.columns import LinearColumns, independent
from colonnade.client.training.linear.design import Design, Floats
from colonnade.client.training.sums.returned import OwnSums
from colonnade.common.conversation.conversation import Link
from colonnade.common.encryption.parameters import ROWS_A_BIN
from colonnade.common.errors import InputError
from colonnade.common.protocols.hetero_lr import ERRORS


class OwnErrors:
    """The party's, from an exchange at the end of the run.

    Raises:
        InputError: its products need too many sums for the training rows.
    """

    def __init__(self, ctx: ClientContext, server: Link, columns: LinearColumns) -> None:
        self._ctx, self._server, self._columns = ctx, server, columns
        used = columns.rounded()[:, columns.used]
        self._z = np.concatenate([np.ones((len(used), 1)), used], axis=1)
        self._pairs = list(combinations_with_replacement(range(self._z.shape[1]), 2))
        self._design = Design(self._products(), len(used))
        most = len(used) // (ROWS_A_BIN * len(ctx.federation.names))
        if (lines := self._design.shape[0]) > most:
            raise InputError(
                f"standard errors of {len(columns.used)} columns need {lines} sums over products of columns, and over "
                f"{len(used)} training rows of {len(ctx.federation.names)} parties at most {most} are given",
                hint="bring fewer columns or more rows, or leave federation.protocol.errors out",
                shared="too many columns for standard errors: federation.protocol.errors",
            )

    def _products(self) -> Iterator[Floats]:
        for one, other in self._pairs:
            yield self._z[:, one] * self._z[:, other]

    async def take(self, vectors: Answers, round: int) -> None:
        """Receives the sums, and keeps the standard errors in the state."""
        asked = OwnSums(self._ctx, self._server, self._design, weight=self._columns.weight)
        if not await asked.open(round):
            return
        vectors.take(2)
        if (found := await asked.sums(round, 2, ERRORS)) is None:
            return
        hessian = np.zeros((self._z.shape[1],) * 2)
        for (one, other), value in zip(self._pairs, self._design.times(found[0]).sum(axis=1), strict=True):
            hessian[one, other] = hessian[other, one] = value
        own = hessian[1:, 1:] - np.outer(hessian[0, 1:], hessian[0, 1:]) / hessian[0, 0]  # the intercept is free
        bounded = independent(own)
        errors = np.sqrt(np.linalg.inv(own[np.ix_(bounded, bounded)]).diagonal())
        own_errors(self._ctx, len(self._columns.mean))[self._columns.used[bounded]] = torch.from_numpy(errors)
        if len(bounded) < len(own):
            self._ctx.warn(
                f"{len(own) - len(bounded)} coefficients have no standard error: the rows that would bound them are of "
                "one class, or sums of columns tell them; set `c`"
            )


def own_errors(ctx: ClientContext, columns: int) -> torch.Tensor:
    """Standard errors of the encoded columns, float64 (columns,); NaN where there are none."""
    return ctx.state.keep("errors", lambda: torch.full((columns,), torch.nan, dtype=torch.float64))
