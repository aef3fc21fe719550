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
    counted = lambda answers, block: predict(answers, len(block))  # noqa: E731
    await evaluate_beside(ctx, clients, kind, round, counted, among, **dims)


async def evaluate_beside(
    ctx: ServerContext,
    clients: Cohort,
    kind: type[M],
    round: int,
    predict: Callable[[Harvest[M], Tensor], Tensor],
    among: Collection[str],
    **dims: int,
) -> None:
    """`evaluate` where the server has columns of its own: `predict` is given the block's row numbers, int64 (rows,)."""
    resting = set(ctx.federation.names).difference(ctx.schedule.participants(round))
    passed: set[tuple[str, int]] = set()
    for part in ctx.schedule.evaluations(round):
        score = _Score(ctx)
        for number, block in enumerate(ctx.schedule.blocks(part)):
            late = partial(_is_among, frozenset(passed))
            answers = await clients.collect(
                kind, round, ctx.quorum, among={*among, *resting}, stale=late, rows=len(block), **dims
            )
            passed.add((part, number))
            _check_place(answers, part, number)
            score.add(partial(predict, answers), block)
        score.enter(round, part)


def evaluate_alone(ctx: ServerContext, round: int, predict: Callable[[Tensor], Tensor]) -> None:
    """The same, of a model that needs nobody's answer.

    Args:
        predict: row numbers, int64 (rows,) -> logits, float32 (rows, classes).
    """
    for part in ctx.schedule.evaluations(round):
        score = _Score(ctx)
        for block in ctx.schedule.blocks(part):
            score.add(predict, block)
        score.enter(round, part)


class _Score:
    """Hits and losses of one part, block by block."""

    def __init__(self, ctx: ServerContext) -> None:
        self._ctx = ctx
        self._hits = self._loss = self._rows = 0.0

    @torch.no_grad()
    def add(self, predict: Callable[[Tensor], Tensor], block: Tensor) -> None:
        targets, logits = self._ctx.labels[block], predict(block)
        self._loss += functional.cross_entropy(logits, targets, reduction="sum").item()
        self._hits += (logits.argmax(1) == targets).sum().item()
        self._rows += len(block)

    def enter(self, round: int, part: str) -> None:
        self._ctx.evaluated(round, part, accuracy=self._hits / self._rows, loss=self._loss / self._rows)


def _place(answer: Message) -> tuple[str, int]:
    return getattr(answer, "part", ""), getattr(answer, "block", -1)


def _is_among(passed: frozenset[tuple[str, int]], answer: Message) -> bool:
    return _place(answer) in passed


def _check_place(answers: Harvest[Message], part: str, block: int) -> None:
    for party, answer in answers.items():
        place = _place(answer)
        if place != (part, block):
            raise ContractError(party, type(answer).__name__, "block", f"{part} {block}", f"{place[0]} {place[1]}")
