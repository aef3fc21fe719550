"""Server side of prediction. The protocol's box is in common/contracts/prediction.py."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.common.contracts.prediction import Ask, Averaged, Decisions, Output, decides, summed, width
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.errors import ContractError, InputError, PartyLost
from colonnade.server.aggregation.masked_sums import Found, blinded
from colonnade.server.prediction.terms import Absent
from colonnade.server.protocols import ACTIVE, FORESTS, JOINT
from colonnade.server.training.context import ServerContext
from colonnade.server.training.fusion.active import ActiveJoint
from colonnade.server.training.fusion.joint import Decided, Joint, Summed
from colonnade.server.training.imputation import Standing


@dataclass(frozen=True)
class Outputs:
    """The joint model's outputs.

    Args:
        lines: line of `outputs` for each id, int64 (ids,); -1 where some member does not know the id.
        outputs: float32 (rows, classes or targets), on the CPU, one line per distinct row.
    """

    lines: Tensor
    outputs: Tensor


@dataclass(frozen=True)
class Question:
    """Ids to predict, at most `ROWS`. Rows are looked up only when the question is taken, as they may change before."""

    ids: tuple[str, ...]
    answer: asyncio.Future[Outputs] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class IdsRenewed(Exception):  # not an error: the next session continues
    """Rows must be aligned anew, since other ids (`asked`: distinct normalised keys) may be asked for from now on."""

    def __init__(self, asked: tuple[str, ...]) -> None:
        super().__init__("other ids may be asked for")
        self.asked = asked


class Questions:
    """Open questions, in order. Outlives sessions: a question that was open when one broke is asked again.

    Attributes:
        over: True if there will be no more.
        hearing: set while the parties are present to respond.
    """

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Question | IdsRenewed | None] = asyncio.Queue()
        self._open: Question | None = None
        self.over, self.hearing = False, asyncio.Event()

    async def ask(self, ids: Iterable[str]) -> Outputs:
        """The joint model's outputs for some ids. Waits through broken sessions until the parties have answered."""
        question = Question(tuple(ids))
        self._waiting.put_nowait(question)
        return await question.answer

    def renew(self, asked: tuple[str, ...]) -> None:
        """Aligns rows for other ids, once all earlier questions are answered."""
        self._waiting.put_nowait(IdsRenewed(asked))

    def close(self) -> None:
        self._waiting.put_nowait(None)

    async def next(self) -> Question | None:
        """The open question, or the next one; None after the last. Raises IdsRenewed between two questions."""
        while self._open is None or self._open.answer.done():
            self._open = None
            match await self._waiting.get():
                case None:
                    self.over = True
                    return None
                case IdsRenewed() as renewed:
                    raise renewed
                case question:
                    self._open = question
        return self._open


async def predict(
    ctx: ServerContext,
    clients: Cohort,
    questions: Questions,
    positions: Callable[[Sequence[str]], Tensor],
    absent: Absent = "refuse",
    *,
    own: bool = False,
    scored: Callable[[Tensor], None] = lambda _rows: None,
) -> None:
    """Collects the present parties' outputs for each question, and computes the joint model's.

    Args:
        positions: ids -> positions of their rows, int64 (ids,); -1 where not all members know them.
        own: True if parties predict too, where they can.
        scored: called with the predicted rows.

    Raises InputError if an absent party cannot be replaced, IdsRenewed if rows must be aligned for other ids.
    """
    of_rows, forest = _joint(ctx), decides(ctx.federation)
    numbers = 0 if forest else width(ctx.federation)
    missing = tuple(party for party in ctx.federation.names if party not in clients)
    if missing and forest:
        raise InputError(
            f"{', '.join(missing)} is absent, and knows on which side of its splits a row is: nothing stands in for it",
            hint="start it, and predict again",
        )
    standing = Standing(ctx, missing, historical=absent == "historical") if missing else None
    sums = await blinded(ctx, clients, numbers) if summed(ctx.federation) else None
    rounds = clients.rounds(sys.maxsize, after=ctx.round)
    questions.hearing.set()
    while (question := await questions.next()) is not None:
        rows, lines = distinct_lines(positions(question.ids))
        if not len(rows):
            _tell(question, Outputs(lines, torch.empty(0, ctx.federation.outputs)))
            continue
        t = await anext(rounds)
        joint = of_rows(rows)
        await clients.broadcast(Ask(t, own, rows))  # 1
        with torch.no_grad():
            if isinstance(joint, Decided):
                total, logits = None, joint.of_sides(await _sides(ctx, clients, t, rows, joint))
            elif sums is None:
                responses = await clients.collect(Output, t, ctx.quorum, rows=len(rows), width=numbers)  # 2
                by_party: dict[str, Tensor] = {party: answer.h for party, answer in responses.items()}
                by_party |= {party: standing.of(party, rows) for party in missing} if standing else {}
                parts = [by_party[party] for party in ctx.federation.names]
                total, logits = torch.stack(parts).sum(0) if own else None, joint.logits(parts)  # 3
            else:
                assert isinstance(joint, Summed)  # true of every protocol with blinded sums
                found = await sums.training(t, rows)
                total = _whole(found, clients)
                logits = joint.of_sum(total)
        if own and total is not None and isinstance(joint, ActiveJoint):
            await clients.broadcast(Averaged(t, joint.average(total)))  # 4
        scored(rows)
        _tell(question, Outputs(lines, logits.cpu()))
    async for _ in rounds:  # none left: this ends the session with the parties
        pass


async def _sides(ctx: ServerContext, clients: Cohort, round: int, rows: Tensor, joint: Decided) -> list[Tensor]:
    """Step 2: the side of each row at the parties' splits. Raises ContractError if a response has other splits."""
    answers = await clients.collect(Decisions, round, ctx.quorum, rows=len(rows))
    for (party, answer), wide in zip(answers.items(), joint.bytes_of(), strict=True):
        if answer.s.shape[1] != wide:
            raise ContractError(party, "Decisions", "s", f"{wide} bytes a row", str(answer.s.shape[1]))
    return [answer.s for answer in answers.values()]


def distinct_lines(positions: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows at these positions, ascending; and the line of each position among them, -1 for -1."""
    known = positions >= 0
    rows, found = torch.unique(positions[known], return_inverse=True)
    return rows, torch.full_like(positions, -1).masked_scatter(known, found)


def _tell(question: Question, answer: Outputs) -> None:
    if not question.answer.done():  # its caller may have gone
        question.answer.set_result(answer)


def _joint(ctx: ServerContext) -> Callable[[Tensor], Joint | Decided]:
    cfg = ctx.federation.protocol
    if decides(ctx.federation):
        forest = FORESTS[cfg.name](ctx, cfg)
        return lambda _rows: forest
    if cfg.name in ACTIVE:
        return ACTIVE[cfg.name](ctx, cfg)
    joint = JOINT[cfg.name](ctx, cfg)
    return lambda _rows: joint


def _whole(found: Found, clients: Cohort) -> Tensor:
    """The sum over all parties. Raises PartyLost if one did not respond."""
    if found.total is None:
        silent = ", ".join(party for party in clients if party not in found.answers)
        raise PartyLost(silent, "gave no answer to a question that needs the sum over all parties")
    return found.total
