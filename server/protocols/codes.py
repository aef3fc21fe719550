"""Codes, server side. The box: common/protocols/codes.py."""

from __future__ import annotations

from collections.abc import Callable, Container

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.privacy.codes import as_codes
from colonnade.common.privacy.encoders import CodeBook
from colonnade.common.protocols.codes import (
    Beliefs,
    Codes,
    Config,
    Counts,
    Evaluation,
    Groups,
    Labels,
    Lessons,
    codes_of,
    counted,
)
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import evaluate
from colonnade.server.training.fusion.codes import CodeJoint, Confusions, Grouping, frequencies, kept_codes
from colonnade.server.training.imputation import StandIn


def joint_of_rows(ctx: ServerContext, _cfg: Config) -> Callable[[Tensor], CodeJoint]:
    """Naive Bayes by rows: training rows' sets may be drawn at another epsilon than others'."""
    confusions = Confusions(ctx, codes_of(ctx.federation))
    return lambda rows: CodeJoint(confusions, rows)


async def serve(ctx: ServerContext, clients: Cohort, cfg: Config) -> None:
    """Sends labels once, collects a set of codes for every row, and fits the codes' frequencies by class."""
    ctx.warn("CODES SHARE LABELS: every party is sent those of all training rows, as far as they are not private")
    parties, codes, confusions = tuple(clients), codes_of(ctx.federation), Confusions(ctx, codes_of(ctx.federation))
    present = StandIn(ctx, parties, codes, "zero")
    taught = ctx.state.keep("taught", dict[str, bool])

    def stacked(responses: Responses[Codes] | Responses[Evaluation], rows: int) -> list[Tensor]:
        _refuse_no_sets(ctx, responses)
        return present.zeros({party: response.s.float() for party, response in responses.items()}, rows)

    def predict(responses: Responses[Evaluation], block: Tensor) -> Tensor:
        return CodeJoint(confusions, block).logits(stacked(responses, len(block)))

    async for t in clients.rounds(ctx.schedule.rounds, after=ctx.round):
        batch = ctx.schedule.batch(t)
        await _teach(ctx, clients, t, taught)  # 1
        if counted(ctx.federation):
            await _group(ctx, clients, t, codes, [party for party in parties if party not in taught])
        responses = await clients.collect(Codes, t, ctx.quorum, rows=len(batch), codes=codes)  # 3
        taught.update(dict.fromkeys(responses, True))
        before = CodeJoint(confusions, batch).logits(stacked(responses, len(batch)))
        confusions.add(stacked(responses, len(batch)), batch)
        confusions.fit(cfg.iterations)  # 4
        ctx.record(t, ctx.loss.mean(before, ctx.targets(batch, before)).item(), responses)
        await evaluate(ctx, clients, Evaluation, t, predict, responses, codes=codes)


def _refuse_no_sets(ctx: ServerContext, responses: Responses[Codes] | Responses[Evaluation]) -> None:
    """Refuses values that are not a set of codes for every row: other numbers than 0 and 1, or a wrong set size.

    Evaluations may have empty sets: they are repeated without each party, whose sets are then zeros.
    """
    plan = as_codes(ctx.schedule.privacy)
    for party, response in responses.items():
        training, size = isinstance(response, Codes), 1
        if plan is not None:
            size = (plan.training if training else plan.held_out).size
        found = response.s.sum(1, dtype=torch.int64)
        if int(response.s.max()) > 1 or bool(((found != size) & ((found > 0) | training)).any()):
            raise ContractError(party, type(response).__name__, "s", f"{size} of the codes for every row", "others")


async def _teach(ctx: ServerContext, clients: Cohort, round: int, taught: Container[str]) -> None:
    """Sends the labels of all training rows, in blocks, to parties that have not sent a code yet."""
    blocks = torch.split(ctx.schedule.partition.train, ctx.federation.batch)
    lacking = [party for party in clients if party not in taught]
    await clients.broadcast({party: Lessons(round, 0 if party in taught else len(blocks)) for party in clients})
    for number, block in enumerate(blocks if lacking else ()):
        nothing = torch.zeros(len(block), ctx.federation.outputs, device=ctx.device)
        y = ctx.targets(block, nothing)
        lesson = Labels(round, number, y) if y.dim() == 1 else Beliefs(round, number, y)
        await clients.broadcast(dict.fromkeys(lacking, lesson))


async def _group(ctx: ServerContext, clients: Cohort, round: int, codes: int, lacking: list[str]) -> None:
    """Groups the classes of parties that have not sent a code yet, by their noisy counts; other groups stay."""
    names, classes, plan = ctx.federation.names, ctx.federation.outputs, as_codes(ctx.schedule.privacy)
    assert plan is not None  # counts exist only then
    kept = ctx.state.keep("groups", lambda: [CodeBook(classes, codes, m).groups for m in range(len(names))])
    counts = ctx.state.keep("counts", lambda: [torch.eye(classes, dtype=torch.float64) for _ in names])
    if not lacking:
        return
    responses = await clients.collect(Counts, round, ctx.quorum, among=lacking, classes=classes)
    for party, response in responses.items():
        counts[names.index(party)] = frequencies(response.n)
    table = kept_codes(codes, plan.held_out.size, plan.held_out.kept)
    free = [names.index(party) for party in responses]
    kept[:] = Grouping(counts, codes, table).best(kept, free)
    await clients.broadcast({party: Groups(round, kept[names.index(party)]) for party in responses})
