"""The server's part of coded computing: it passes on what it cannot open, and decodes sums from the first answers."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from colonnade.common.coded_computing.coded_rows import CodedRows
from colonnade.common.coded_computing.lagrange import LagrangeCode
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Quorum, Responses
from colonnade.common.crypto.signatures import Signer
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import check_exact
from colonnade.common.messaging.raw import lay_out, to_tensor
from colonnade.common.numerics import fixed_point
from colonnade.common.protocols.fedvs import (
    Answer,
    Bundle,
    Config,
    Opened,
    Preparation,
    Prepared,
    Senders,
    Shares,
    hash_of,
    place,
    signed_senders,
)
from colonnade.common.secure_aggregation.masked_sums import smallest_set
from colonnade.common.secure_aggregation.summed_sets import MemberRecord
from colonnade.server.training.context import ServerContext


class CodedSums:
    """Sums of all parties' embeddings, stage by stage.

    Args:
        ctx, clients: of the half.
        cfg, code: the agreed ones.
        signer: what the parties got to know when the run's session began.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, cfg: Config, code: LagrangeCode, signer: Signer) -> None:
        self._ctx, self._clients, self._code, self._cfg, self._signer = ctx, clients, code, cfg, signer
        self._names, self._least = tuple(clients), smallest_set(ctx.federation)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, self._names)
        self._all = Quorum(limit=ctx.federation.timeouts.answer)
        self._enough = Quorum(need=code.threshold, limit=ctx.federation.timeouts.answer)

    async def prepare(self, rows: CodedRows) -> None:
        """Has data shares made, unless everybody still holds those of the same sharing: steps 2 to 9."""
        round, ctx = self._ctx.round, self._ctx
        held = await self._clients.collect(Prepared, round, self._all)
        numbers = {answer.held for answer in held.values()}
        anew = len(numbers) > 1 or "" in numbers
        sharing = secrets.token_hex(8) if anew else numbers.pop()
        columns = torch.tensor([self._columns(party, answer) for party, answer in held.items()])
        await self._clients.broadcast(Preparation(round, sharing, anew, columns))
        chunks = len(rows.chunks(self._cfg.chunk)) if anew else 0
        for stage in range(chunks):
            await self._pass_on(round, stage, self._all)
            ctx.telemetry.event("preparing", chunk=stage + 1, chunks=chunks)

    async def agree(self, round: int, stage: int) -> Tensor | None:
        """Passes on model shares, and settles over whose models the stage sums: steps 18 to 20.

        As federation.quorum says, everybody's or those of the fastest. Whoever's share some party could not
        open is left out for all. A stage that comes again waits for those over whom it went before.

        Returns:
            The set, uint8 (parties,); None if there is none that is large enough, or that which the stage had before.

        Raises:
            PartyLost: too few share, or can open what others share.
            EnvironmentFault: the set cannot be noted on the disk.
        """
        bound = self._record.bound(place(round, stage))
        again = Quorum(need=0, grace=self._ctx.federation.timeouts.answer)
        shares = await self._pass_on(round, stage, *((self._ctx.quorum, None) if bound is None else (again, bound)))
        if not self._can_sum(round, bound, shares):
            return None
        late = partial(_before, stage)
        opened = await self._clients.collect(Opened, round, self._enough, stale=late, parties=len(self._names))
        for party, answer in opened.items():
            _check_stage(party, answer, stage)
        common = _common([answer.senders for answer in opened.values()]).tolist()
        whose = {name for name, is_in in zip(self._names, common, strict=True) if is_in}
        if not self._can_sum(round, bound, whose):
            return None
        members = whose if bound is None else bound
        self._record.enter(place(round, stage), members)
        senders = torch.tensor([name in members for name in self._names], dtype=torch.uint8)
        if left_out := [name for name in self._names if name not in members]:
            self._ctx.telemetry.event("partial_sum", round=round, stage=stage, without=left_out)
        signature = self._signer.sign(signed_senders(self._ctx.session, round, stage, senders))
        await self._clients.broadcast(Senders(round, stage, senders, to_tensor(signature)))
        return senders

    async def decode(
        self, round: int, stage: int, number: int, coded: int, senders: Tensor
    ) -> tuple[Tensor | None, Responses[Answer]]:
        """The average embedding of a block of coded rows, from the first R answers: steps 27 to 30.

        Args:
            number: of the block.
            coded: its coded rows.
            senders: the stage's set.

        Returns:
            float32 (K * coded, width) in segment order, or None if so many refuse that too few are left; who answered.

        Raises:
            ContractError: an answer is for another set, is no element of the field, or does not agree with the others.
            PartyLost: fewer than R answered.
        """
        answers = await self._answers(round, stage, number, coded, hash_of(senders))
        if len(answers) < self._code.threshold:
            return None, answers
        points = [self._names.index(party) for party in answers]
        values = torch.stack([answer.h.reshape(-1) for answer in answers.values()]).to(torch.int64)
        sums = self._code.decode(points, values).view(-1, self._cfg.embedding)
        self._check_surplus(points, values)
        bits = self._cfg.data_bits + self._cfg.weight_bits
        return fixed_point.dequantise(self._code.field, sums, bits, len(self._names)).float(), answers

    async def _answers(self, round: int, stage: int, number: int, coded: int, senders: str) -> Responses[Answer]:
        """R answers of those who do not refuse, or all that there can be if they are fewer."""
        asked, given, need = set(self._names), dict[str, Answer](), self._code.threshold
        while True:
            quorum = replace(self._enough, need=need - len(given))
            late = partial(_earlier, stage, number)
            found = await self._clients.collect(Answer, round, quorum, among=asked, stale=late)
            for party, answer in found.items():
                self._check(party, answer, stage, number, coded, senders)
            asked.difference_update(found)
            given.update({party: answer for party, answer in found.items() if len(answer.h)})
            if len(given) >= need or len(given) + len(asked) < need:
                return replace(found, answers=given, missing=tuple(n for n in self._names if n not in given))

    async def _pass_on(
        self, round: int, stage: int, quorum: Quorum, among: Collection[str] | None = None
    ) -> Responses[Shares]:
        others, late = len(self._names) - 1, partial(_before, stage)
        shares = await self._clients.collect(Shares, round, quorum, among=among, stale=late, parties=others)
        for party, answer in shares.items():
            _check_stage(party, answer, stage)
        for party in await self._clients.collect(Shares, round, Quorum(need=0), among=set(shares), stale=late):
            raise ContractError(party, "Shares", "", "one a stage", "a second")
        await self._clients.broadcast({name: self._bundle(name, round, stage, shares) for name in self._names})
        return shares

    def _bundle(self, receiver: str, round: int, stage: int, shares: Mapping[str, Shares]) -> Bundle:
        """The boxes for one party: of each sender the row that the receiver has among the others."""
        index, nothing = self._names.index(receiver), torch.empty(0, dtype=torch.uint8)
        boxes = [
            shares[name].boxes[index - (index > place)] if name in shares and name != receiver else nothing
            for place, name in enumerate(self._names)
        ]
        return Bundle(round, stage, *lay_out(boxes))

    def _columns(self, party: str, answer: Prepared) -> int:
        if not 1 <= answer.columns <= self._cfg.columns:
            raise ContractError(party, "Prepared", "columns", f"1 to {self._cfg.columns}", str(answer.columns))
        return answer.columns

    def _can_sum(self, round: int, bound: Collection[str] | None, whose: Collection[str]) -> bool:
        """Whether those whose shares are there make a set; tells the record of the run who is lacking."""
        wanted = self._names if bound is None else bound
        if len(whose) >= self._least if bound is None else set(whose) >= set(bound):
            return True
        for party in sorted(set(wanted).difference(whose)):
            self._ctx.telemetry.event("abandoned", round=round, party=party)
        return False

    def _check(self, party: str, answer: Answer, stage: int, number: int, coded: int, senders: str) -> None:
        if len(answer.h):
            check_exact(party, answer, {"coded": coded, "width": self._cfg.embedding})
        if (answer.stage, answer.block) != (stage, number):
            got = f"{answer.stage} {answer.block}"
            raise ContractError(party, "Answer", "stage, block", f"{stage} {number}", got)
        if answer.senders != senders:
            raise ContractError(party, "Answer", "senders", f"{senders}, the set that was announced", answer.senders)
        if len(answer.h) and not 0 <= int(answer.h.min()) <= int(answer.h.max()) < self._code.field.p:
            raise ContractError(party, "Answer", "h", f"elements below {self._code.field.p}", "others")

    def _check_surplus(self, points: list[int], values: Tensor) -> None:
        """More answers than are needed must lie on the same polynomial."""
        if disagreeing := self._code.strays(points, values):
            names = ", ".join(self._names[point] for point in disagreeing)
            raise ContractError(names, "Answer", "h", "what the other answers make it", "something else")


def _common(reports: Collection[Tensor]) -> Tensor:
    """The parties whose shares everybody could open who said so."""
    return torch.stack(list(reports)).eq(1).all(0).to(torch.uint8)


def _before(stage: int, message: Shares | Opened) -> bool:
    return message.stage < stage


def _earlier(stage: int, number: int, answer: Answer) -> bool:
    return (answer.stage, answer.block) < (stage, number)


def _check_stage(party: str, message: Shares | Opened, stage: int) -> None:
    if message.stage != stage:
        raise ContractError(party, type(message).__name__, "stage", str(stage), str(message.stage))
