"""FedVS, party side. The box: common/protocols/fedvs.py."""

from __future__ import annotations

from colonnade.client.aggregation.coded import CodedParty, polynomial
from colonnade.client.aggregation.key_agreement import agree
from colonnade.client.training.context import ClientContext
from colonnade.client.training.local import Local
from colonnade.common.aggregation.lagrange import CodedRows, LagrangeCode
from colonnade.common.conversation.conversation import Link
from colonnade.common.models.optimiser import stepper
from colonnade.common.models.polynomial import Polynomial
from colonnade.common.protocols.fedvs import Config, Gradient
from colonnade.common.run.phases import evaluation


def local(ctx: ClientContext, cfg: Config) -> Local:
    """The party's part of the sum."""
    return Local(_network(ctx, cfg))


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Computes on every party's shares, and trains its own network by the gradient of the average."""
    parties = len(ctx.federation.names)
    code, model = LagrangeCode.of(cfg.code(parties)), _network(ctx, cfg)
    step = stepper(ctx.optimiser())
    rows = CodedRows(ctx.schedule.partition, code.segments, ctx.federation)
    coded = CodedParty(ctx, server, cfg, model, code, rows, keys=await agree(ctx, server))
    await coded.prepare()  # 2-9
    async for t in server.rounds(after=ctx.round):
        batch = rows.training(t)
        total = await coded.share(t, 0, [batch])  # 14-20
        if total is not None:
            await coded.answer(t, 0, 0, batch.positions, total, 0)  # 23
        real = batch.rows[batch.real]
        gradient = await server.recv(Gradient, t, rows=len(real), width=cfg.embedding)
        if gradient is None:  # the server went on without us: follow it
            continue
        powers = model.powers(ctx.features[real])  # (rows, columns): the network is linear in them
        model.weight.grad = powers.T @ (gradient.dh.to(ctx.device) / parties)  # 34
        step()
        await _evaluate(ctx, rows, coded, t)


@evaluation
async def _evaluate(ctx: ClientContext, rows: CodedRows, coded: CodedParty, round: int) -> None:
    """Evaluates the parts that are due, coded like the training rows: one sharing of the model serves all of them."""
    blocks = [block for part in ctx.schedule.evaluations(round) for block in rows.blocks(part)]
    total = await coded.share(round, 1, blocks) if blocks else None
    if total is None:
        return
    first = 0
    for number, block in enumerate(blocks):
        await coded.answer(round, 1, number, block.positions, total, first)
        first += len(block.positions)


def _network(ctx: ClientContext, cfg: Config) -> Polynomial:
    return polynomial(ctx.name, ctx.model(cfg.embedding))
