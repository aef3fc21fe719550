"""Averaged predictions, server side. The box: common/protocols/agg_vfl.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.protocols.agg_vfl import Config, Evaluation, Gradient, Prediction
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.fusion.active import ActiveJoint, active_joint, active_party
from colonnade.server.training.imputation import StandIn


def joint_of_rows(ctx: ServerContext, cfg: Config) -> Callable[[Tensor], ActiveJoint]:
    """The joint model by rows, as the server has columns of its own."""
    return active_joint(ctx, cfg.embedding, "logits")


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Averages all members' predictions, the server's among them, and returns the gradient at each."""
    classes, parties = ctx.federation.outputs, tuple(clients)
    own, columns, loss = active_party(ctx, cfg.embedding), ctx.columns, ctx.loss
    assert columns is not None  # required by the contract
    present = StandIn(ctx, parties, classes, "zero" if cfg.missing == "leave_out" else cfg.missing)

    def counted(responses: Mapping[str, object]) -> int:
        """C: the active party and the averaged parties."""
        return 1 + len(responses if cfg.missing == "leave_out" else parties)

    def average(r_a: Tensor, parts: Sequence[Tensor], count: int) -> Tensor:
        return (r_a + torch.stack(list(parts)).sum(0).to(ctx.device)) / count

    def predict(responses: Responses[Evaluation], block: Tensor) -> Tensor:
        with own.evaluation() as model:
            r_a = model.predict(model.embed(columns[block]))
        parts = present.zeros({party: response.r for party, response in responses.items()}, len(block))
        return average(r_a, parts, counted(responses))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        r_a = own.predict(own.embed(columns[batch]))  # (rows, classes)
        responses = await clients.collect(Prediction, t, ctx.quorum, rows=len(batch), classes=classes)  # 1
        parts = present.fill({party: response.r for party, response in responses.items()}, batch, t)
        if parts is None:
            ctx.skip(t, responses)
            continue
        count = counted(responses)
        r = average(r_a, parts, count)  # 2, (rows, classes)
        y = ctx.targets(batch, r)
        dr = loss.gradient(r, y) / (len(batch) * count)
        await clients.broadcast({party: Gradient(t, dr) for party in responses})  # 3
        own.learn(dr)  # 4
        ctx.record(t, loss.value(r, y).mean().item(), responses)
        await evaluate(ctx, clients, Evaluation, t, predict, responses, classes=classes)
