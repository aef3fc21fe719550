"""Steps of a regression, party side, and standard errors of own coefficients. The box: common/protocols/hetero_lr.py.

Without a penalty the covariance of all coefficients is the inverse of the Hessian Z' W Z, over Z = [1, X] of all
parties and the second derivatives W of the loss. The server returns to a party the sums of W over products of two of
its own columns, hence the party's own block of the Hessian. The inverse of that block is the covariance given the other
parties' part, with the intercept free: that of statsmodels if one party has all columns. It is too small where other
parties' columns correlate with this one's.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from itertools import combinations_with_replacement
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from colonnade.client.aggregation.masked_sums import SumTerms, terms
from colonnade.client.privacy.answers import Answers
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear import Design, Floats, LinearColumns, independent
from colonnade.client.training.local import Local
from colonnade.client.training.sums import OwnSums
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.contracts.regression import Direction, Products, RegressionConfig, Step, lines_of, scale_of
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.encryption.linear import PartyMatrix
from colonnade.common.encryption.parameters import ROWS_A_BIN
from colonnade.common.errors import ContractError, InputError
from colonnade.common.models.vector_free import Share
from colonnade.common.protocols.hetero_lr import ERRORS


class StepColumns(Protocol):
    """A party's columns X, in coordinates b in which its part of the Hessian is about 1.

    `penalty` is the factor of the squared coefficients, times 1/2.
    """

    penalty: float

    @property
    def count(self) -> int:
        """Coefficients per output."""

    @property
    def weight(self) -> int:
        """The largest magnitude of an entry of `matrix`."""

    def matrix(self) -> PartyMatrix:
        """Small whole numbers over the training rows; X' r is a linear function of their sums."""

    def gradient(self, sums: Floats, at: Floats) -> Floats:
        """Gradient in b, (count, outputs), from the sums of the loss's derivatives over `matrix`."""

    def coefficients(self, at: Floats) -> Floats:
        """The columns' coefficients from b, (count, outputs)."""

    def model(self, coefficients: Floats) -> Local:
        """The part of the model with these coefficients."""


async def step_terms(ctx: ClientContext, server: Link, cfg: RegressionConfig) -> SumTerms:
    """The sums of products and of logits, after the key agreement if they are blinded."""
    return await terms(
        ctx, server, cfg.aggregate, lambda t, o: Products(t, 0, o), lambda t, _part, stage, o: Products(t, stage, o)
    )


class OwnSteps:
    """One session's steps; `vectors` counts the server's vectors."""

    def __init__(
        self,
        ctx: ClientContext,
        server: Link,
        cfg: RegressionConfig,
        columns: StepColumns,
        own: SumTerms,
        vectors: Answers,
    ) -> None:
        self._ctx, self._server, self._columns, self._own, self._vectors = ctx, server, columns, own, vectors
        self._width, self._scale = scores_of(ctx.federation), scale_of(ctx.federation)
        self._share, self._made = share_of(ctx, cfg, columns), ctx.state.keep("steps", lambda: {"made": 0})
        self._asked = OwnSums(ctx, server, columns.matrix(), weight=columns.weight)
        self._rows = torch.arange(len(ctx.features.values))
        self.at_end: Callable[[int], Awaitable[None]] | None = None  # if the server says that the run has converged
        if cfg.aggregate == "clear" or len(ctx.federation.names) == 1:
            ctx.warn(
                f"the server is shown this party's logits of every step: {columns.count} steps span its columns, and "
                "as many known rows tell all others; policy.blinded refuses that"
            )

    async def round(self, t: int) -> None:
        """Follows the direction and the step of the server, unless it goes on without us."""
        ctx, columns, share, width = self._ctx, self._columns, self._share, self._width
        if not await self._asked.open(t):
            return
        self._vectors.take(2 * width)
        if (found := await self._asked.sums(t, 2 * width)) is None:  # 1 to 3
            return
        both = found[0]
        products = share.products(columns.gradient(both[:, :width] + both[:, width:], share.at))
        if not await self._own.begin(t, subject(TRAINING, torch.arange(lines_of(products.size, width)))):
            return
        await self._own.train(t, ctx.release(_lines(products, width)))  # 4
        direction = await self._server.recv(Direction, t, memory=len(products))  # 5
        if direction is None:
            return
        if direction.steps != self._made["made"]:
            raise ContractError(SERVER, "Direction", "steps", str(self._made["made"]), str(direction.steps))
        if self.at_end is not None and not direction.coefficients.any():
            await self.at_end(t)
            return
        turned = columns.coefficients(share.turn(direction.coefficients.numpy()))
        added = columns.model(turned).of_rows(ctx.features, self._rows)
        penalty = torch.full((1, width), float(columns.penalty * (turned**2).sum()))
        logits = torch.cat([added * self._scale, penalty])
        about = subject(TRAINING, self._rows, "direction", direction.steps)
        await self._own.more(t, 1, about, ctx.release(logits))  # 6
        step = await self._server.recv(Step, t, two=2)  # 7
        if step is None:
            return
        length, unit = step.step.tolist()
        if not (0 < length < math.inf and 0 < unit < math.inf):
            raise ContractError(SERVER, "Step", "step", "numbers above 0", f"{length:g}, {unit:g}")
        share.step(length, unit)
        self._made["made"] += 1


def share_of(ctx: ClientContext, cfg: RegressionConfig, columns: StepColumns) -> Share:
    """The party's part of the vectors, kept in its state."""
    start = np.zeros((columns.count, scores_of(ctx.federation)))
    return ctx.state.keep("coefficients", lambda: Share(start, cfg.memory, len(ctx.schedule.partition.train) ** -0.5))


def _lines(products: Floats, width: int) -> Tensor:
    padded = np.zeros(lines_of(products.size, width) * width, np.float32)
    padded[: products.size] = products.ravel()
    return torch.from_numpy(padded.reshape(-1, width))


class OwnErrors:
    """Standard errors from an exchange at the end of the run.

    Raises InputError if the products need too many sums for the number of training rows.
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
