"""How good the joint model is on rows that it was not trained on."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from common.conversation import Cohort, Harvest
from common.errors import ContractError
from common.message import M, Message
from server.context import ServerContext


async def evaluate(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[M],
    round: int,
    predict: Callable[[Harvest[M], int], Tensor],
    among: Collection[str],
    **dims: int,
) -> None:
    """Evaluates the parts that are due after a round, block by block as the parties send them.

    Args:
        kind: the protocol's evaluation message, with fields `part` and `block`.
        predict: (answers of a block, its rows) -> logits, float32 (rows, classes).
        among: who was there in the round; whoever missed it evaluates nothing. Who was not drawn for it does.
        dims: the message's dimensions beside `rows`.
    """
    resting = set(ctx.federation.names).difference(ctx.schedule.participants(round))
    passed: set[tuple[str, int]] = set()
    for part in ctx.schedule.evaluations(round):
        hits = loss = rows = 0.0
        for number, block in enumerate(ctx.schedule.blocks(part)):
            late = partial(_is_among, frozenset(passed))
            size = len(block)
            answers = await clients.collect(
                kind, round, ctx.quorum, among={*among, *resting}, stale=late, rows=size, **dims
            )
            passed.add((part, number))
            _check_place(answers, part, number)
            targets = ctx.labels[block]
            with torch.no_grad():
                logits = predict(answers, len(block))
                loss += functional.cross_entropy(logits, targets, reduction="sum").item()
            hits += (logits.argmax(1) == targets).sum().item()
            rows += len(block)
        ctx.evaluated(round, part, accuracy=hits / rows, loss=loss / rows)


def _place(answer: Message) -> tuple[str, int]:
    return getattr(answer, "part", ""), getattr(answer, "block", -1)


def _is_among(passed: frozenset[tuple[str, int]], answer: Message) -> bool:
    return _place(answer) in passed


def _check_place(answers: Harvest[Message], part: str, block: int) -> None:
    for party, answer in answers.items():
        place = _place(answer)
        if place != (part, block):
            raise ContractError(party, type(answer).__name__, "block", f"{part} {block}", f"{place[0]} {place[1]}")
