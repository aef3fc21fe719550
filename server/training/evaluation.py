"""Evaluation of the joint model on validation and test rows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, Message
from colonnade.common.run.activity import activity
from colonnade.common.run.phases import evaluation
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.joint import Joint
from colonnade.server.training.imputation import Absence, StandIn


@evaluation
async def evaluate(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[M],
    round: int,
    predict: Callable[[Responses[M], Tensor], Tensor],
    among: Collection[str],
    **dims: int,
) -> None:
    """Evaluates the parts due after a round, block by block.

    Args:
        kind: the protocol's evaluation message, with fields `part` and `block`.
        predict: (responses of a block, its row numbers int64 (rows,)) -> logits, float32 (rows, classes).
        among: parties that took part in the round. Those not sampled for it evaluate too; those that missed it do not.
        dims: the message's dimensions other than `rows`.
    """
    looks_back = round == ctx.schedule.rounds or ctx.federation.stop is not None  # the round may become the best one
    for part in ctx.schedule.evaluations(round):
        score, absence = ctx.score(), Absence(ctx, kind)
        blocks = ctx.schedule.blocks(part)
        with activity(f"evaluating the {part} rows", len(blocks), "blocks") as doing:
            for number, block in enumerate(blocks):
                place = part, number
                responses = await collect_block(ctx, clients, kind, round, place, among, rows=len(block), **dims)
                with torch.no_grad():
                    logits = predict(responses, block)
                score.add(logits, ctx.labels[block])
                if part == "validation":
                    absence.add(responses, block, again=looks_back)
                doing.step()
        ctx.evaluated(round, part, score)
        if part == "validation":
            with torch.no_grad():
                if looks_back and ctx.of_model(round):
                    ctx.absent.update(absence.scores(predict))
                else:
                    absence.means()


async def evaluate_embeddings(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[Any],
    round: int,
    whole: Joint,
    present: StandIn,
    *,
    among: Collection[str],
) -> None:
    """`evaluate` for a joint model of embeddings `h`, with zeros for missing parties."""

    def predict(responses: Responses[Any], block: Tensor) -> Tensor:
        return whole.logits(present.zeros({party: response.h for party, response in responses.items()}, len(block)))

    await evaluate(ctx, clients, kind, round, predict, among, width=present.width)


def evaluate_alone(ctx: ServerContext, round: int, predict: Callable[[Tensor], Tensor]) -> None:
    """Evaluates a model that needs no party. `predict` maps row numbers, int64 (rows,), to logits, float32 (rows,
    classes).
    """
    for part in ctx.schedule.evaluations(round):
        score = ctx.score()
        for block in ctx.schedule.blocks(part):
            score.add(predict(block), ctx.labels[block])
        ctx.evaluated(round, part, score)
    alone = ctx.positive is not None and ctx.federation.protocol.full_batch
    if alone and ctx.schedule.evaluations(round) and ctx.keeps(round):
        ctx.keep_scores("train", torch.cat([predict(block) for block in ctx.schedule.blocks("train")]))


async def collect_block(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[M],
    round: int,
    place: tuple[str, int],
    among: Collection[str],
    **dims: int,
) -> Responses[M]:
    """Collects the parties' responses for one block; `place` is its part and number, `dims` all of the message's.

    Raises ContractError if a response is for a later or unknown block.
    """
    resting = set(ctx.federation.names).difference(ctx.schedule.participants(round))
    late = partial(_is_before, ctx, round, place)
    responses = await clients.collect(kind, round, ctx.quorum, among={*among, *resting}, stale=late, **dims)
    for party, response in responses.items():
        if (found := _place(response)) != place:
            expected, got = (f"{part} {number}" for part, number in (place, found))
            raise ContractError(party, kind.__name__, "block", expected, got)
    return responses


def _place(response: Message) -> tuple[str, int]:
    return getattr(response, "part", ""), getattr(response, "block", -1)


def _is_before(ctx: ServerContext, round: int, place: tuple[str, int], response: Message) -> bool:
    (part, number), parts = _place(response), ctx.schedule.evaluations(round)
    if part not in parts:
        return False
    return (parts.index(part), number) < (parts.index(place[0]), place[1])
