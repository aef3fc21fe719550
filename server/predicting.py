"""The server's half of a prediction. The box: common/prediction.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from common.conversation import Cohort
from common.errors import PartyLost
from common.prediction import Ask, Averaged, Output, summed, width
from server.absence import Absent, Standing
from server.active_joint import ActiveJoint
from server.blinded import blinded
from server.context import ServerContext
from server.joint import Joint, Summed
from server.protocols import ACTIVE, JOINT
from server.sums import Found


@dataclass(frozen=True)
class Question:
    """Rows that somebody wants logits of.

    Args:
        rows: their positions, int64 (rows,), at least one and at most `ROWS`, without repeats.
        answer: where the logits come, float32 (rows, classes) on the CPU.
    """

    rows: Tensor
    answer: asyncio.Future[Tensor] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Questions:
    """What is to be answered, in order. It outlives sessions: a question that was under way when one broke comes again.

    Attributes:
        over: whether there will be no more.
        hearing: set while the parties are there to answer.
    """

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Question | None] = asyncio.Queue()
        self._open: Question | None = None
        self.over, self.hearing = False, asyncio.Event()

    async def ask(self, rows: Tensor) -> Tensor:
        """The logits of some rows, float32 (rows, classes). Raises whatever has ended the conversation."""
        question = Question(rows)
        self._waiting.put_nowait(question)
        return await question.answer

    def close(self) -> None:
        """There will be no more."""
        self._waiting.put_nowait(None)

    async def next(self) -> Question | None:
        """The one that is open, or the one that comes next; None when there are no more."""
        while self._open is None or self._open.answer.done():
            self._open = await self._waiting.get()
            if self._open is None:
                self.over = True
                return None
        return self._open


async def predict(
    ctx: ServerContext,
    clients: Cohort,
    questions: Questions,
    absent: Absent = "refuse",
    history: Tensor | None = None,
    *,
    own: bool = False,
) -> None:
    """Asks everybody who is there for its outputs of the rows in question, and puts them together.

    Args:
        absent: what is taken for who is not there.
        history: the row that was trained on for every position, int64, -1 for none; None where they are the same.
        own: whether parties predict too, where they can.

    Raises:
        InputError: there is nothing that could stand in for somebody.
        ContractError: a party breaks the contract.
        PartyLost: one does not answer in time.
    """
    of_rows, numbers = _joint(ctx), width(ctx.federation)
    missing = tuple(party for party in ctx.federation.names if party not in clients)
    standing = Standing(ctx, absent, missing, history) if missing else None
    sums = await blinded(ctx, clients, numbers) if summed(ctx.federation) else None
    rounds = clients.rounds(sys.maxsize, after=ctx.round)
    questions.hearing.set()
    while (question := await questions.next()) is not None:
        t, rows = await anext(rounds), question.rows
        joint = of_rows(rows)
        await clients.tell(Ask(t, own, rows))  # 1
        with torch.no_grad():
            if sums is None:
                answers = await clients.collect(Output, t, ctx.quorum, rows=len(rows), width=numbers)  # 2
                said = {party: answer.h for party, answer in answers.items()}
                said |= {party: standing.of(party, rows) for party in missing} if standing else {}
                parts = [said[party] for party in ctx.federation.names]
                total, logits = torch.stack(parts).sum(0) if own else None, joint.logits(parts)  # 3
            else:
                assert isinstance(joint, Summed)  # of every protocol that sums
                found = await sums.training(t, rows)
                total = _whole(found, clients)
                logits = joint.of_sum(total)
        if own and total is not None and isinstance(joint, ActiveJoint):
            await clients.tell(Averaged(t, joint.average(total)))  # 4
        if not question.answer.done():  # who asked may have gone
            question.answer.set_result(logits.cpu())
    async for _ in rounds:  # which are over: the parties are told
        pass


def _joint(ctx: ServerContext) -> Callable[[Tensor], Joint]:
    """The joint model, by the rows that it is of."""
    name = ctx.federation.protocol.name
    if name in ACTIVE:
        return ACTIVE[name](ctx)
    joint = JOINT[name](ctx)
    return lambda _rows: joint


def _whole(found: Found, clients: Cohort) -> Tensor:
    """The sum, which there is if everybody has answered. Raises PartyLost."""
    if found.total is None:
        silent = ", ".join(party for party in clients if party not in found.answers)
        raise PartyLost(silent, "gave no answer to a question of which everybody's sum is needed")
    return found.total
