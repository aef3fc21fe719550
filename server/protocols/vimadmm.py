"""VIMADMM, server side. The box: common/protocols/vimadmm.py."""

from __future__ import annotations

import torch

from colonnade.common.config.protocol import damping_factor
from colonnade.common.contracts.embeddings import Embedding, Evaluation
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.models import admm
from colonnade.common.protocols.vimadmm import Config, Update
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate_embeddings
from colonnade.server.training.fusion.heads import party_heads
from colonnade.server.training.fusion.joint import HeadSum
from colonnade.server.training.imputation import StandIn


def joint(ctx: ServerContext, cfg: Config) -> HeadSum:
    """The heads W_k."""
    parties = len(ctx.federation.names)
    return HeadSum(party_heads(ctx, cfg.head, parties, cfg.embedding), ctx.device)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Keeps z, lambda and the heads W_k; sends every party the residual that its model should explain."""
    width, classes, parties = cfg.embedding, ctx.federation.outputs, tuple(clients)
    loss, damping = ctx.loss, damping_factor(cfg.damping, len(parties))
    whole, bound = joint(ctx, cfg), cfg.rho if cfg.damping == "parties" else None
    heads = whole.each
    duals = ctx.state.keep("duals", lambda: torch.zeros(len(ctx.labels), classes, device=ctx.device))

    present = StandIn(ctx, parties, width, cfg.missing)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        responses = await clients.collect(
            Embedding, t, ctx.quorum, among=ctx.schedule.participants(t), rows=len(batch), width=width
        )  # 1
        parts = present.fill({party: response.h for party, response in responses.items()}, batch, t)
        if parts is None:
            ctx.skip(t, responses)
            continue
        h = torch.stack(parts).to(ctx.device)  # (M, rows, width)
        with torch.no_grad():
            own = heads.logits(h)  # h_k W_k, (M, rows, classes)
            total = own.sum(0)
            z, y = ctx.minimise_z(batch, duals[batch], total, cfg.rho)  # 2
            dual = duals[batch] = admm.update_dual(duals[batch], total, z, cfg.rho, cfg.dual_step)  # 3
            heads.step(h, admm.local_gradient(total, dual, z, cfg.rho), bound)  # 4
            if cfg.residual == "new":
                own = heads.logits(h)
            residual = admm.residual(z, own.sum(0), own, damping)
        indices = [(index, party) for index, party in enumerate(parties) if party in responses]
        await clients.broadcast(
            {party: Update(t, dual, residual[index], heads.flat(index)) for index, party in indices}
        )  # 5
        ctx.record(t, loss.value(total, y).mean().item(), responses)
        await evaluate_embeddings(ctx, clients, Evaluation, t, whole, present, among=responses)
