"""FDML, server side. The box: common/protocols/fdml.py."""

from __future__ import annotations

from operator import attrgetter

from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.messaging.label_messages import label_message
from colonnade.common.protocols.fdml import Aggregate, Config
from colonnade.server.aggregation.masked_sums import Clear, blinded, evaluate_sums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import LogitSum
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, _cfg: Config) -> LogitSum:
    """The mean of the logits: the parties hold the heads."""
    return LogitSum(ctx.device, 1 / len(ctx.federation.names))


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Averages the parties' logits, and sends every party the labels that FDML assumes it to have."""
    ctx.warn("FDML SHARES LABELS: every party is sent those of all training rows")
    classes, parties, share = ctx.federation.outputs, tuple(clients), 1 / len(clients)
    present = StandIn(ctx, parties, classes, cfg.missing)
    clear = Clear(ctx, clients, Logits, Evaluation, attrgetter("o"), present, classes=classes)
    sums = clear if cfg.aggregate == "clear" else await blinded(ctx, clients, classes)
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        found = await sums.training(t, batch)  # 1
        responses = found.answers
        if found.total is None:
            ctx.skip(t, responses)
            continue
        mean = found.total.to(ctx.device) * share  # o, (rows, classes)
        y = ctx.targets(batch, mean)
        await clients.broadcast(dict.fromkeys(responses, label_message(t, y, regression=ctx.scale is not None)))  # 2
        await clients.broadcast({party: Aggregate(t, mean) for party in responses})  # 3
        ctx.record(t, ctx.loss.mean(mean, y).item(), responses)
        await evaluate_sums(ctx, sums, t, lambda o, _count: o * share, responses)
