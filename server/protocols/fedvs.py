"""FedVS, server side. The box: common/protocols/fedvs.py."""

from __future__ import annotations

from functools import partial

import torch

from colonnade.common.aggregation.lagrange import CodedRows, LagrangeCode
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.protocols.fedvs import Config, Gradient
from colonnade.common.run.phases import evaluation
from colonnade.server.aggregation.coded import CodedSums
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import CombinedHead


def joint(ctx: ServerContext, cfg: Config) -> CombinedHead:
    """The head theta_0 on the average embedding."""
    return CombinedHead(ctx, cfg.embedding, "average")


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Trains on average embeddings that it decodes from coded sums."""
    code, whole = LagrangeCode.of(cfg.code(len(clients))), joint(ctx, cfg)
    rows = CodedRows(ctx.schedule.partition, code.segments, ctx.federation)
    sums = CodedSums(ctx, clients, cfg, code, await introduce(ctx, clients))
    await sums.prepare(rows)  # 2-9
    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = rows.training(t)
        senders = await sums.agree(t, 0)  # 18-20
        if senders is None:
            ctx.skip(t, Responses({}, tuple(clients)))
            continue
        average, responses = await sums.decode(t, 0, 0, len(batch.positions), senders)  # 27-30
        if average is None:
            ctx.skip(t, responses)
            continue
        real = batch.rows[batch.real].to(ctx.device)
        loss, (dh,), _ = whole.backward([average[batch.real]], partial(ctx.targets, real))  # 31
        await clients.broadcast(Gradient(t, dh))
        whole.step()
        ctx.record(t, loss, responses)
        await _evaluate(ctx, sums, rows, whole, t)


@evaluation
async def _evaluate(ctx: ServerContext, sums: CodedSums, rows: CodedRows, whole: CombinedHead, round: int) -> None:
    """Evaluates the joint model on the parts that are due, whose rows are coded too."""
    parts = ctx.schedule.evaluations(round)
    if not parts:
        return
    senders, number = await sums.agree(round, 1), 0
    if senders is None:
        ctx.warn(f"round {round}: no evaluation, since a party's share of its model is missing")
        return
    for part in parts:
        score = ctx.score()
        for block in rows.blocks(part):
            average, _ = await sums.decode(round, 1, number, len(block.positions), senders)
            if average is None:
                ctx.warn(f"round {round}: no evaluation of the {part} rows, since too few parties answered")
                return
            with torch.no_grad():
                logits = whole.logits([average[block.real]])
            score.add(logits, ctx.labels[block.rows[block.real].to(ctx.device)])
            number += 1
        ctx.evaluated(round, part, score)
