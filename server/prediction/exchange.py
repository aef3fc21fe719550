"""The server's half of a prediction. The box: common/prediction/messages.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import PartyLost
from colonnade.common.prediction.messages import Ask, Averaged, Output, summed, width
from colonnade.server.aggregation.masked_sums import blinded
from colonnade.server.aggregation.sums import Found
from colonnade.server.fusion.active_joint import ActiveJoint
from colonnade.server.fusion.joint import Joint, Summed
from colonnade.server.protocols import ACTIVE, JOINT
from colonnade.server.training.absence import Absent, Standing
from colonnade.server.training.context import ServerContext


@dataclass(frozen=True)
class Outputs:
    """The joint model's outputs.

    Args:
        at: the line of each id that all members know.
        outputs: float32 (rows, classes or targets), on the CPU.
    """

    at: Mapping[str, int]
    outputs: Tensor


@dataclass(frozen=True)
class Question:
    """Whom somebody wants outputs of. Which rows these are is looked up when it is asked: they may be others by then.

    Args:
        ids: at most `ROWS`.
        answer: where the answer comes.
    """

    ids: tuple[str, ...]
    answer: asyncio.Future[Outputs] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


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

    async def ask(self, ids: Iterable[str]) -> Outputs:
        """What the joint model says of some people. Raises whatever has ended the conversation."""
        question = Question(tuple(ids))
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
    place: Callable[[str], int | None],
    absent: Absent = "refuse",
    history: Tensor | None = None,
    *,
    own: bool = False,
) -> None:
    """Asks everybody who is there for its outputs of the rows in question, and puts them together.

    Args:
        place: the position of an id's row, None where not all members know it.
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
        places = {id: row for id in question.ids if (row := place(id)) is not None}
        rows = torch.tensor(sorted(set(places.values())), dtype=torch.int64)
        if not len(rows):
            _tell(question, Outputs({}, torch.empty(0, ctx.federation.outputs)))
            continue
        t = await anext(rounds)
        joint = of_rows(rows)
        await clients.broadcast(Ask(t, own, rows))  # 1
        with torch.no_grad():
            if sums is None:
                answers = await clients.collect(Output, t, ctx.quorum, rows=len(rows), width=numbers)  # 2
                said: dict[str, Tensor] = {party: answer.h for party, answer in answers.items()}
                said |= {party: standing.of(party, rows) for party in missing} if standing else {}
                parts = [said[party] for party in ctx.federation.names]
                total, logits = torch.stack(parts).sum(0) if own else None, joint.logits(parts)  # 3
            else:
                assert isinstance(joint, Summed)  # of every protocol that sums
                found = await sums.training(t, rows)
                total = _whole(found, clients)
                logits = joint.of_sum(total)
        if own and total is not None and isinstance(joint, ActiveJoint):
            await clients.broadcast(Averaged(t, joint.average(total)))  # 4
        line = {row: number for number, row in enumerate(rows.tolist())}
        _tell(question, Outputs({id: line[row] for id, row in places.items()}, logits.cpu()))
    async for _ in rounds:  # which are over: the parties are told
        pass


def _tell(question: Question, answer: Outputs) -> None:
    if not question.answer.done():  # who asked may have gone
        question.answer.set_result(answer)


def _joint(ctx: ServerContext) -> Callable[[Tensor], Joint]:
    """The joint model, by the rows that it is of."""
    cfg = ctx.federation.protocol
    if cfg.name in ACTIVE:
        return ACTIVE[cfg.name](ctx, cfg)
    joint = JOINT[cfg.name](ctx, cfg)
    return lambda _rows: joint


def _whole(found: Found, clients: Cohort) -> Tensor:
    """The sum, which there is if everybody has answered. Raises PartyLost."""
    if found.total is None:
        silent = ", ".join(party for party in clients if party not in found.answers)
        raise PartyLost(silent, "gave no answer to a question of which everybody's sum is needed")
    return found.total
