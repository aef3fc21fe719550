"""Linear and logistic regression, party side. The box: common/protocols/hetero_lr.py."""

from __future__ import annotations

from functools import partial

from colonnade.client.regression import OwnErrors, OwnSteps, own_errors, share_of, step_terms
from colonnade.client.training.context import ClientContext
from colonnade.client.training.linear import LinearColumns, LinearModel
from colonnade.common.contracts.boosting import scores_of
from colonnade.common.contracts.regression import CURVATURE
from colonnade.common.conversation.conversation import Link
from colonnade.common.protocols.hetero_lr import Config


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Keeps the coefficients of its columns, which follow the directions and steps of the server."""
    columns, expected = _columns(ctx, cfg), ctx.schedule.rounds * 2 * scores_of(ctx.federation) + 2 * cfg.errors
    vectors, errors = ctx.answers("vectors", expected), OwnErrors(ctx, server, columns) if cfg.errors else None
    steps = OwnSteps(ctx, server, cfg, columns, await step_terms(ctx, server, cfg), vectors)
    if errors is not None:
        steps.at_end = partial(errors.take, vectors)
    async for t in server.rounds(after=ctx.round):
        await steps.round(t)


def model_of(ctx: ClientContext) -> LinearModel:
    """The party's part of the model, by its state."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # asked of this protocol's runs alone
    return local(ctx, cfg)


def local(ctx: ClientContext, cfg: Config) -> LinearModel:
    """The coefficients of the state."""
    columns = _columns(ctx, cfg)
    model = columns.model(columns.coefficients(share_of(ctx, cfg, columns).at))
    if cfg.errors:
        model.errors = own_errors(ctx, len(columns.mean)).numpy()
    return model


def _columns(ctx: ClientContext, cfg: Config) -> LinearColumns:
    return LinearColumns(ctx, 0.0 if cfg.c == "none" else 1 / cfg.c, CURVATURE[ctx.federation.task])
