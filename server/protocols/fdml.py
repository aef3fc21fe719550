"""FDML, the server's half. The box: common/protocols/fdml.py."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from common.conversation import Cohort, Harvest
from common.protocols.fdml import Aggregate, Config, Evaluation, Labels, Logits
from server.context import ServerContext
from server.evaluation import evaluate
from server.joint import LogitSum
from server.standin import StandIn


def joint(ctx: ServerContext) -> LogitSum:
    """A mean: the heads are the parties'."""
    return LogitSum(ctx.device, 1 / len(ctx.federation.names))


async def serve(ctx: ServerContext, clients: Cohort) -> None:
    """Averages the parties' logits, and gives every party the labels that FDML supposes it to have."""
    cfg = ctx.federation.protocol
    assert isinstance(cfg, Config)  # the registry pairs them
    ctx.warn("FDML SHARES LABELS: every party is sent those of all training rows")
    classes, parties = ctx.federation.outputs, tuple(clients)
    whole, present = joint(ctx), StandIn(ctx, parties, classes, cfg.missing)

    def predict(answers: Harvest[Evaluation], rows: int) -> Tensor:
        return whole.logits(present.zeros({party: answer.o for party, answer in answers.items()}, rows))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        answers = await clients.collect(Logits, t, ctx.quorum, rows=len(batch), classes=classes)  # 1
        parts = present.fill({party: answer.o for party, answer in answers.items()}, batch, t)
        if parts is None:
            ctx.skip(t, answers)
            continue
        mean = whole.logits(parts)  # o, (rows, classes)
        targets = ctx.targets(batch, mean)
        y = targets if targets.dim() == 1 else targets.argmax(1)  # of noisy labels, the likeliest class
        await clients.tell({party: Labels(t, y) for party in answers})  # 2
        await clients.tell({party: Aggregate(t, mean) for party in answers})  # 3
        ctx.record(t, functional.cross_entropy(mean, y).item(), answers)
        await evaluate(ctx, clients, Evaluation, t, predict, answers, classes=classes)
