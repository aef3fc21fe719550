"""Sums of masked words, each of which alone reveals nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.common.aggregation.masked_sums import confirmed, smallest_set
from colonnade.common.aggregation.masks import remove_masks
from colonnade.common.aggregation.messages import Masked, Members, words
from colonnade.common.aggregation.shamir import sharing
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.aggregation.summed_sets import MemberRecord, marks
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import check_exact
from colonnade.common.privacy.sum_noise import ring
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.aggregation.recovery import ShareCollection
from colonnade.server.aggregation.set_proofs import relay_proofs, without_refusals
from colonnade.server.aggregation.sums import Found, Sums
from colonnade.server.training.context import ServerContext

_LONGEST_REST = 64  # rounds


async def blinded(ctx: ServerContext, clients: Cohort, width: int) -> Sums:
    """Relays the parties' keys; afterwards their values, `width` numbers a row, can be summed without being seen."""
    await introduce(ctx, clients)
    sums = Blinded(ctx, clients, width)
    await sums.begin()
    return sums


class Blinded:
    """Sums of masked words, `width` a row, over a set of parties that is settled before any of them responds.

    If one of the set does not respond there is no sum, or with recovery a sum over those that responded. That party is
    left out of the next 2 rounds, then of 4, 8, .. if it fails again.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, width: int) -> None:
        self.ctx, self._clients = ctx, clients
        self._ring, self._words = ring(ctx.federation, ctx.schedule.privacy), words(ctx.federation, width)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, tuple(clients))
        shares = sharing(ctx.federation)
        self._shares = None if shares is None else ShareCollection(ctx, clients, shares, self._record)
        self._failures: dict[str, int] = {}
        self._rests_until: dict[str, int] = {}

    async def begin(self) -> None:
        if self._shares is not None:
            await self._shares.begin(self.ctx.round + 1)

    async def training(self, round: int, batch: Tensor) -> Found:
        """Broadcasts the set, and sums over it; with recovery, over those whose words arrive."""
        fresh = self._record.bound(round) is None
        members = self.set_of(round)
        if members is None:
            return Found(None, Responses({}, tuple(self._clients)))
        self._record.enter(round, members)
        announced = Members(round, marks(tuple(self._clients), members))
        await self._clients.broadcast(dict.fromkeys(members, announced))
        if self._shares is not None:
            found = await self._recovered(round, batch, members, self._shares, fresh=fresh)
        else:
            found = await self._confirm(round, members) or await self._sum(round, 0, len(batch), members)
        self._judge(round, members, found)
        return found

    async def more(self, round: int, stage: int, rows: int, among: Collection[str]) -> Found:
        return await self._sum(round, stage, rows, among)

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        return await self._sum(round, self.ctx.schedule.stage(round, part, number), rows, among)

    async def _confirm(self, round: int, members: Collection[str]) -> Found | None:
        """Relays confirmations of the set; None if everyone in it confirms, or confirmation is not configured."""
        if not confirmed(self.ctx.federation):
            return None
        sent = await relay_proofs(self._clients, round, self.ctx.quorum, members)
        return Found(None, sent) if len(sent) < len(members) else None

    async def _sum(self, round: int, stage: int, rows: int, members: Collection[str]) -> Found:
        responses = await self._received(round, stage, rows, members)
        if len(responses) < len(members):
            return Found(None, responses)
        return self.finding(self._total(responses), responses)

    async def _recovered(
        self, round: int, batch: Tensor, members: Sequence[str], shares: ShareCollection, *, fresh: bool
    ) -> Found:
        """The sum over the parties whose words arrive, with the masks that they share with the others removed."""
        responses = await self._received(round, 0, len(batch), members)
        summed = await shares.settle(round, members, responses, fresh=fresh)
        if summed is None:
            return Found(None, responses)
        keys = await shares.open(round, members, summed)
        there = {party: responses[party] for party in summed}
        missing = tuple(party for party in self._clients if party not in there)
        about = subject(TRAINING, batch)
        total = remove_masks(self._total(there), round, 0, members, keys.own, keys.pairs, about=about)
        return self.finding(total, replace(responses, answers=there, missing=missing), members, keys.unchecked)

    async def _received(self, round: int, stage: int, rows: int, members: Collection[str]) -> Responses[Masked]:
        responses = await self._clients.collect(Masked, round, self.ctx.quorum, among=members)
        responses = without_refusals(responses, lambda masked: len(masked.words))
        for party, response in responses.items():
            check_exact(party, response, {"lines": rows + 1, "words": self._words})
            if response.stage != stage:
                raise ContractError(party, "Masked", "stage", str(stage), str(response.stage))
        return responses

    def _total(self, responses: Mapping[str, Masked]) -> Tensor:
        return self._ring.total(torch.stack([response.words.view(self._ring.dtype) for response in responses.values()]))

    def finding(
        self, total: Tensor, responses: Responses[Masked], laid: Collection[str] = (), unchecked: Collection[str] = ()
    ) -> Found:
        values, zeros = total[:-1], total[-1]
        if bool(zeros.any()) or not self._ring.fits(values):
            expected, got = f"masks that cancel, over {', '.join(responses)}", "a sum out of range"
            if bool(zeros.any()):
                got = "a sum of zeros that is not 0: they were told of different rows, or words were changed"
            if unchecked:
                got += f"; the shares of keys that {', '.join(unchecked)} opened could not be compared with others"
            raise ContractError(f"one of {', '.join(laid or responses)}", "Masked", "words", expected, got)
        return Found(self._ring.decode(values).float(), responses)

    def set_of(self, round: int) -> list[str] | None:
        """The round's set in roster order; None if the round is bound to a set with an absent party."""
        names, least = list(self._clients), smallest_set(self.ctx.federation)
        here = [name for name in names if not self._is_away(name)]
        awake = [name for name in here if self._rests_until.get(name, 0) < round]
        chosen = awake if len(awake) >= least else here if len(here) >= least else names
        bound = self._record.bound(round)
        if bound is not None and bound != set(chosen):
            chosen = [name for name in names if name in bound]
            if not bound <= set(here):
                self.ctx.telemetry.event("abandoned", round=round, party=sorted(bound - set(here))[0])
                return None
        return chosen

    def _is_away(self, party: str) -> bool:
        mailbox = self._clients[party].mailbox
        return mailbox.excused(party) or mailbox.fault([party]) is not None

    def _judge(self, round: int, members: list[str], found: Found) -> None:
        """Leaves parties that failed the round out for a while, so that the set does not alternate."""
        failed = [party for party in members if party not in found.answers]
        for party in set(members).difference(failed):
            self._failures.pop(party, None)
        for party in failed:
            failures = self._failures[party] = self._failures.get(party, 0) + 1
            self._rests_until[party] = round + min(2**failures, _LONGEST_REST)
            if found.total is None:
                self.ctx.telemetry.event("abandoned", round=round, party=party)
        if failed and found.total is not None:
            self.ctx.telemetry.event("partial_sum", round=round, stage=0, without=failed)
