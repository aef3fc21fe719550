"""Sums of masked words, which say nothing by themselves."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message, check_exact
from colonnade.common.secure_aggregation.masked_sums import Masked, Members, ring, smallest_set, words
from colonnade.common.secure_aggregation.summed_sets import MemberRecord
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.aggregation.sums import Found, Sums
from colonnade.server.training.context import ServerContext

_LONGEST_REST = 64  # rounds


async def blinded(ctx: ServerContext, clients: Cohort, width: int) -> Sums:
    """Passes on the parties' keys; from then on their values, of so many numbers a row, can be summed blind.

    Raises:
        PartyLost: somebody offers no key.
        ContractError: what it offers is none, or it has offered another already.
    """
    await introduce(ctx, clients)
    return Blinded(ctx, clients, width)


class Blinded:
    """Sums of masked words, over a set of parties that is settled before anyone answers.

    If one of the set does not answer there is no sum: it is left out of the next rounds, first of 2, then of 4,
    8, .. if it fails again.

    Args:
        ctx, clients: of the half.
        width: of a row of values.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, width: int) -> None:
        self._ctx, self._clients = ctx, clients
        self._ring, self._words = ring(ctx.federation), words(ctx.federation, width)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, tuple(clients))
        self._failures: dict[str, int] = {}
        self._rests_until: dict[str, int] = {}

    async def training(self, round: int, batch: Tensor) -> Found:
        """Tells the set, and sums over it."""
        members = self._members(round)
        if members is None:
            return Found(None, Responses({}, tuple(self._clients)))
        told = Members(round, torch.tensor([name in members for name in self._clients], dtype=torch.uint8))
        await self._clients.broadcast(dict.fromkeys(members, told))
        found = await self._sum(round, 0, len(batch), members)
        self._judge(round, members, found.answers)
        return found

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Over the round's set, which is `among`."""
        return await self._sum(round, self._ctx.schedule.stage(round, part, number), rows, among)

    async def _sum(self, round: int, stage: int, rows: int, members: Collection[str]) -> Found:
        answers = await self._clients.collect(Masked, round, self._ctx.quorum, among=members)
        answers = _with_rows(answers)
        for party, answer in answers.items():
            check_exact(party, answer, {"rows": rows, "words": self._words})
            if answer.stage != stage:
                raise ContractError(party, "Masked", "stage", str(stage), str(answer.stage))
        if len(answers) < len(members):
            return Found(None, answers)
        total = self._ring.total(torch.stack([answer.words.view(self._ring.dtype) for answer in answers.values()]))
        if not self._ring.fits(total):
            expected = f"masks that cancel, over {', '.join(members)}"
            raise ContractError("one of the parties", "Masked", "words", expected, "a sum out of range")
        return Found(self._ring.decode(total).float(), answers)

    def _members(self, round: int) -> list[str] | None:
        """The round's set in the roster's order; None if it is bound to one that is not all here."""
        names, least = list(self._clients), smallest_set(self._ctx.federation)
        here = [name for name in names if not self._is_away(name)]
        awake = [name for name in here if self._rests_until.get(name, 0) < round]
        chosen = awake if len(awake) >= least else here if len(here) >= least else names
        bound = self._record.bound(round)
        if bound is not None and bound != set(chosen):
            chosen = [name for name in names if name in bound]
            if not bound <= set(here):
                self._ctx.telemetry.event("abandoned", round=round, party=sorted(bound - set(here))[0])
                return None
        self._record.enter(round, chosen)
        return chosen

    def _is_away(self, party: str) -> bool:
        mailbox = self._clients[party].mailbox
        return mailbox.excused(party) or mailbox.fault([party]) is not None

    def _judge(self, round: int, members: list[str], answers: Responses[Message]) -> None:
        """Who failed the round rests for a while: a set that changes back and forth helps nobody."""
        for party in members:
            if party in answers:
                self._failures.pop(party, None)
                continue
            failures = self._failures[party] = self._failures.get(party, 0) + 1
            self._rests_until[party] = round + min(2**failures, _LONGEST_REST)
            self._ctx.telemetry.event("abandoned", round=round, party=party)


def _with_rows(answers: Responses[Masked]) -> Responses[Masked]:
    """Without those who refuse the round."""
    given = {party: answer for party, answer in answers.items() if len(answer.words)}
    refused = tuple(party for party in answers if party not in given)
    return replace(answers, answers=given, missing=(*answers.missing, *refused))
