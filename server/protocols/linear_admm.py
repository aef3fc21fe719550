"""Linear ADMM, server side. The box: common/protocols/linear_admm.py."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.models import admm
from colonnade.common.protocols.linear_admm import Config, Update
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.fusion.joint import LogitSum
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, _cfg: Config) -> LogitSum:
    """The sum of the logits: the parties hold the models."""
    return LogitSum(ctx.device)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Keeps z and lambda; sends all parties the same target for the logits."""
    classes, parties = ctx.federation.outputs, tuple(clients)
    loss = ctx.loss
    duals = ctx.state.keep("duals", lambda: torch.zeros(len(ctx.labels), classes, device=ctx.device))
    present = StandIn(ctx, parties, classes, cfg.missing)

    def predict(responses: Responses[Evaluation], block: Tensor) -> Tensor:
        logits = {party: response.o for party, response in responses.items()}
        return torch.stack(present.zeros(logits, len(block))).sum(0).to(ctx.device)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        responses = await clients.collect(Logits, t, ctx.quorum, rows=len(batch), classes=classes)  # 1
        parts = present.fill({party: response.o for party, response in responses.items()}, batch, t)
        if parts is None:
            ctx.skip(t, responses)
            continue
        total = torch.stack(parts).sum(0).to(ctx.device)  # (rows, classes)
        z, y = ctx.minimise_z(batch, duals[batch], total, cfg.rho)  # 2
        dual = duals[batch] = admm.update_dual(duals[batch], total, z, cfg.rho)  # 3
        update = Update(t, admm.local_gradient(total, dual, z, cfg.rho))
        await clients.broadcast(dict.fromkeys(responses, update))  # 4
        ctx.record(t, loss.value(total, y).mean().item(), responses)
        await evaluate(ctx, clients, Evaluation, t, predict, responses, classes=classes)
