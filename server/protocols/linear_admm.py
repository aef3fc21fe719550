"""Linear ADMM, the server's half. The box: common/protocols/linear_admm.py."""

from __future__ import annotations

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.numerics import admm
from colonnade.common.protocols.linear_admm import Config, Evaluation, Logits, Update
from colonnade.server.fusion.joint import LogitSum
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, _cfg: Config) -> LogitSum:
    """A sum: the models are the parties'."""
    return LogitSum(ctx.device)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Keeps z and lambda; tells all parties alike where the logits should go."""
    classes, parties = ctx.federation.outputs, tuple(clients)
    loss = ctx.loss
    duals = ctx.state.keep("duals", lambda: torch.zeros(len(ctx.labels), classes, device=ctx.device))
    present = StandIn(ctx, parties, classes, cfg.missing)

    def predict(answers: Responses[Evaluation], block: Tensor) -> Tensor:
        said = {party: answer.o for party, answer in answers.items()}
        return torch.stack(present.zeros(said, len(block))).sum(0).to(ctx.device)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        answers = await clients.collect(Logits, t, ctx.quorum, rows=len(batch), classes=classes)  # 1
        parts = present.fill({party: answer.o for party, answer in answers.items()}, batch, t)
        if parts is None:
            ctx.skip(t, answers)
            continue
        total = torch.stack(parts).sum(0).to(ctx.device)  # (rows, classes)
        y = ctx.targets(batch, total)
        z = admm.minimise_z(y, duals[batch], total, cfg.rho, loss)  # 2
        dual = duals[batch] = admm.update_dual(duals[batch], total, z, cfg.rho)  # 3
        update = Update(t, admm.local_gradient(total, dual, z, cfg.rho))
        await clients.broadcast(dict.fromkeys(answers, update))  # 4
        ctx.record(t, loss.value(total, y).mean().item(), answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, classes=classes)
