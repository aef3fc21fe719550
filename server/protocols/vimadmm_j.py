"""VIMADMM-J, server side. The box: common/protocols/vimadmm_j.py."""

from __future__ import annotations

from operator import attrgetter

import torch

from colonnade.common.config.protocol import damping_factor
from colonnade.common.contracts.logits import Evaluation, Logits
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.models import admm
from colonnade.common.protocols.vimadmm_j import Config, Signal, Update
from colonnade.server.aggregation.masked_sums import Clear, blinded, evaluate_sums
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import LogitSum
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, _cfg: Config) -> LogitSum:
    """The sum of the logits: the parties hold the heads."""
    return LogitSum(ctx.device)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Keeps z and lambda; sends every party the residual that its model should explain."""
    classes, parties = ctx.federation.outputs, tuple(clients)
    loss, damping = ctx.loss, damping_factor(cfg.damping, len(parties))
    duals = ctx.state.keep("duals", lambda: torch.zeros(len(ctx.labels), classes, device=ctx.device))
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
        total = found.total.to(ctx.device)  # sum_i o_i, (rows, classes)
        z, y = ctx.minimise_z(batch, duals[batch], total, cfg.rho)  # 2
        dual = duals[batch] = admm.update_dual(duals[batch], total, z, cfg.rho, cfg.dual_step)  # 3
        if cfg.update == "signal":
            await clients.broadcast(dict.fromkeys(responses, Signal(t, dual + cfg.rho * (total - z))))  # 4
        else:
            assert found.parts is not None  # blinded sums need no residuals: checked by the contract
            residual = admm.residual(z, total, torch.stack(found.parts).to(ctx.device), damping)
            indices = [(index, party) for index, party in enumerate(parties) if party in responses]
            await clients.broadcast({party: Update(t, dual, residual[index]) for index, party in indices})  # 4
        ctx.record(t, loss.value(total, y).mean().item(), responses)
        await evaluate_sums(ctx, sums, t, lambda o, _count: o, responses)
