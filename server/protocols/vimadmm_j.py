"""VIMADMM-J, the server's half. The box: common/protocols/vimadmm_j.py."""

from __future__ import annotations

import torch
from torch import Tensor

from common.conversation import Cohort, Harvest
from common.numerics import admm
from common.numerics.losses import CrossEntropy
from common.protocols.vimadmm_j import Config, Evaluation, Logits, Signal, Update
from server.context import ServerContext
from server.evaluation import evaluate
from server.joint import LogitSum
from server.standin import StandIn


def joint(ctx: ServerContext) -> LogitSum:
    """A sum: the heads are the parties'."""
    return LogitSum(ctx.device)


async def serve(ctx: ServerContext, clients: Cohort) -> None:
    """Keeps z and lambda; tells every party what is left for it to explain."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    classes, parties = ctx.federation.outputs, tuple(clients)
    loss = CrossEntropy()
    duals = ctx.state.keep("duals", lambda: torch.zeros(len(ctx.labels), classes, device=ctx.device))
    present = StandIn(ctx, parties, classes, cfg.missing)

    whole = joint(ctx)

    def predict(answers: Harvest[Evaluation], rows: int) -> Tensor:
        return whole.logits(present.zeros({party: answer.o for party, answer in answers.items()}, rows))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        answers = await clients.collect(
            Logits, t, ctx.quorum, among=ctx.schedule.participants(t), rows=len(batch), classes=classes
        )  # 1
        parts = present.fill({party: answer.o for party, answer in answers.items()}, batch, t)
        if parts is None:
            ctx.skip(t, answers)
            continue
        own = torch.stack(parts).to(ctx.device)  # o_k, (M, rows, classes)
        total = own.sum(0)
        y = ctx.targets(batch, total)
        z = admm.minimise_z(y, duals[batch], total, cfg.rho, loss)  # 2
        dual = duals[batch] = admm.update_dual(duals[batch], total, z, cfg.rho, cfg.dual_step)  # 3
        if cfg.update == "signal":
            await clients.tell(dict.fromkeys(answers, Signal(t, dual + cfg.rho * (total - z))))  # 4
        else:
            residual = admm.residual(z, total, own)
            seats = [(seat, party) for seat, party in enumerate(parties) if party in answers]
            await clients.tell({party: Update(t, dual, residual[seat]) for seat, party in seats})  # 4
        ctx.record(t, loss.value(total, y).mean().item(), answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, classes=classes)
