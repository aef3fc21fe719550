"""FDML, the server's half. The box: common/protocols/fdml.py."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from common.conversation import Cohort, Harvest
from common.protocols.fdml import Aggregate, Config, Evaluation, Labels, Logits
from server.context import ServerContext
from server.evaluation import evaluate
from server.standin import StandIn


async def serve(ctx: ServerContext, clients: Cohort) -> None:
    """Averages the parties' logits, and gives every party the labels that FDML supposes it to have."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    ctx.warn("FDML SHARES LABELS: every party is sent those of all training rows")
    classes, parties = ctx.federation.outputs, tuple(clients)
    present = StandIn(ctx, parties, classes, cfg.missing)

    def predict(answers: Harvest[Evaluation], rows: int) -> Tensor:
        said = {party: answer.o for party, answer in answers.items()}
        return torch.stack(present.zeros(said, rows)).mean(0).to(ctx.device)

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        y = ctx.labels[batch]
        answers = await clients.collect(Logits, t, ctx.quorum, rows=len(batch), classes=classes)  # 1
        parts = present.fill({party: answer.o for party, answer in answers.items()}, batch, t)
        if parts is None:
            ctx.skip(t, answers)
            continue
        mean = torch.stack(parts).mean(0)  # o, (rows, classes)
        await clients.tell({party: Labels(t, y) for party in answers})  # 2
        await clients.tell({party: Aggregate(t, mean) for party in answers})  # 3
        ctx.record(t, functional.cross_entropy(mean.to(ctx.device), y).item(), answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, classes=classes)
