"""Sums over the parties, for protocols whose server needs no more: in the clear, or masked.

A masked word reveals nothing by itself. The box of the recovery of sums without vanished parties:
common/aggregation/recovery.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from colonnade.common.aggregation.masked_sums import confirmed, smallest_set
from colonnade.common.aggregation.masks import remove_masks
from colonnade.common.aggregation.messages import (
    BLOCK,
    SECRETS,
    SHARE_BYTES,
    Arrived,
    Masked,
    Members,
    OpenedShares,
    SealedShares,
    SetProof,
    SetProofs,
    words,
)
from colonnade.common.aggregation.recovery import Recovered, Sharing, first_of_block, recover, sharing
from colonnade.common.aggregation.subject import TRAINING, subject
from colonnade.common.aggregation.summed_sets import MemberRecord, marks, relayed
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, Message, check_exact
from colonnade.common.privacy.sum_noise import ring
from colonnade.common.run.phases import evaluation
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.training.context import ServerContext
from colonnade.server.training.evaluation import collect_block
from colonnade.server.training.imputation import StandIn


@dataclass(frozen=True)
class Found:
    """Result of a round, or of a block of an evaluation.

    Args:
        total: the sum, float32 (rows, width), on the CPU; None if there is none.
        parts: every party's values in roster order; None where they are hidden.
    """

    total: Tensor | None
    answers: Responses[Message]
    parts: list[Tensor] | None = None


class Sums(Protocol):
    async def training(self, round: int, batch: Tensor) -> Found:
        """Sums every party's values of a batch, row numbers int64 (rows,). A round without a sum is left out."""

    async def more(self, round: int, stage: int, rows: int, among: Collection[str]) -> Found:
        """Sums values of another stage of a round's training, from 1, over the parties that took part in it."""

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Sums the values of a block of validation or test rows, over the parties that took part in the round."""


@evaluation
async def evaluate_sums(
    ctx: ServerContext, sums: Sums, round: int, logits: Callable[[Tensor, int], Tensor], among: Collection[str]
) -> None:
    """Evaluates the parts due after a round, as server/training/evaluation.py does.

    `logits` maps a sum and the number of responses to the joint model's logits, float32 (rows, classes). If a block has
    no sum the evaluation is given up: the same rows summed over other parties would reveal values.
    """
    for part in ctx.schedule.evaluations(round):
        score = ctx.score()
        for number, block in enumerate(ctx.schedule.blocks(part)):
            found = await sums.block(round, part, number, len(block), among)
            if found.total is None:
                ctx.warn(f"round {round}: no evaluation of the {part} rows, since a party did not answer")
                return
            with torch.no_grad():
                score.add(logits(found.total.to(ctx.device), len(found.answers)), ctx.labels[block])
        ctx.evaluated(round, part, score)


class Clear:
    """Sums of values sent in the clear; `present` imputes missing parties.

    Args:
        training, evaluation: the protocol's messages; the latter has `part` and `block`.
        value: extracts a message's values, float32 (rows, width).
        dims: the messages' dimensions other than `rows`.
    """

    def __init__(
        self,
        ctx: ServerContext,
        clients: Cohort,
        training: type[Message],
        evaluation: type[Message],
        value: Callable[[Any], Tensor],
        present: StandIn,
        **dims: int,
    ) -> None:
        self._ctx, self._clients, self._kinds = ctx, clients, (training, evaluation)
        self._value, self._present, self._dims = value, present, dims

    async def training(self, round: int, batch: Tensor) -> Found:
        """Sums over the parties sampled for the round."""
        kind, among = self._kinds[0], self._ctx.schedule.participants(round)
        responses = await self._clients.collect(
            kind, round, self._ctx.quorum, among=among, stale=None, rows=len(batch), **self._dims
        )
        parts = self._present.fill(self._values(responses), batch, round)
        return Found(None if parts is None else torch.stack(parts).sum(0), responses, parts)

    async def more(self, round: int, stage: int, rows: int, among: Collection[str]) -> Found:  # noqa: ARG002  # in step
        """Sums over `among`; None unless every one of them responds in time."""
        responses = await self._clients.collect(
            self._kinds[1], round, self._ctx.quorum, among=among, stale=None, rows=rows, **self._dims
        )
        parts = list(self._values(responses).values())
        return Found(torch.stack(parts).sum(0) if len(parts) == len(among) else None, responses, parts)

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Sums a block; missing parties count as zeros."""
        kind, place = self._kinds[1], (part, number)
        responses = await collect_block(self._ctx, self._clients, kind, round, place, among, rows=rows, **self._dims)
        parts = self._present.zeros(self._values(responses), rows)
        return Found(torch.stack(parts).sum(0), responses, parts)

    def _values(self, responses: Responses[Message]) -> dict[str, Tensor]:
        return {party: self._value(response) for party, response in responses.items()}


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


class ShareCollection:
    """Keeps the parties' sealed shares, settles the sets of rounds, and requests opened shares.

    `record` holds the sets of the rounds that may have been summed.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, sharing: Sharing, record: MemberRecord) -> None:
        self._ctx, self._clients, self._sharing, self._record = ctx, clients, sharing, record
        self._names = tuple(clients)
        self._dealt: dict[str, SealedShares] = {}

    async def begin(self, round: int) -> None:
        """Waits for every party's shares for the first rounds. Raises PartyLost if one sends none."""
        await self._receive(round, self._names, Quorum(limit=self._ctx.federation.timeouts.answer))

    async def settle(
        self, round: int, laid: Collection[str], arrived: Collection[str], *, fresh: bool
    ) -> list[str] | None:
        """The set that the round sums over, confirmed by everyone in it; None if there is none.

        A party that vanishes before it confirms is left out for all. A round that may have been summed before is summed
        over the same set.

        Args:
            laid: parties that the masks were computed for.
            arrived: parties whose words arrived.
            fresh: True if the round was not attempted before, so that its set may still shrink.
        """
        lacking = [party for party in laid if not self._holds(party, round)]
        await self._receive(round, lacking, Quorum(need=0))
        told, summed = list(laid), [party for party in laid if party in arrived]
        while len(summed) >= smallest_set(self._ctx.federation):
            confirmed = await relay_proofs(self._clients, round, self._ctx.quorum, told, summed)
            if len(confirmed) == len(told):
                return summed
            summed = [party for party in summed if party in confirmed]
            if not fresh or len(summed) < smallest_set(self._ctx.federation):
                return None
            if not all(self._holds(party, round) for party in laid):
                return None
            self._record.narrow(round, summed)
            announced = Arrived(round, marks(self._names, summed))
            await self._clients.broadcast(dict.fromkeys(summed, announced))
            told = summed
        return None

    async def open(self, round: int, laid: Collection[str], summed: Sequence[str]) -> Recovered:
        """The keys of the masks that do not cancel in the sum.

        Raises PartyLost if fewer than t parties open their shares; ContractError, with the parties that can be the
        cause, if some opened shares are wrong.
        """
        quorum = replace(self._ctx.quorum, need=self._sharing.threshold)
        opened = await self._clients.collect(
            OpenedShares, round, quorum, among=summed, parties=len(self._names), share=SHARE_BYTES
        )
        return recover(self._names, self._sharing, self._dealt, opened, laid, summed)

    def _holds(self, party: str, round: int) -> bool:
        return party in self._dealt and self._dealt[party].round == first_of_block(round)

    async def _receive(self, round: int, among: Collection[str], quorum: Quorum) -> None:
        self._dealt |= await self._clients.collect(
            SealedShares,
            first_of_block(round),
            quorum,
            among=among,
            dealt=BLOCK,
            secrets=SECRETS,
            parties=len(self._names),
            share=SHARE_BYTES,
        )


async def relay_proofs(
    clients: Cohort, round: int, quorum: Quorum, members: Collection[str], there: Collection[str] | None = None
) -> Responses[SetProof]:
    """Relays the proofs of a set once every member has sent one; returns the proofs.

    `there` are the members that can still respond; None for all.
    """
    among = members if there is None else there
    sent = await clients.collect(SetProof, round, quorum, among=among, proof=PROOF_BYTES)
    sent = without_refusals(sent, lambda proof: len(proof.proofs))
    for party, proof in sent.items():
        check_exact(party, proof, {"parties": len(clients)})
    if len(sent) == len(members):
        proofs = relayed(tuple(clients), {party: proof.proofs for party, proof in sent.items()}, sent)
        await clients.broadcast({party: SetProofs(round, 0, theirs) for party, theirs in proofs.items()})
    return sent


def without_refusals(responses: Responses[M], size: Callable[[M], int]) -> Responses[M]:
    """The responses without those of size 0, which refuse the round."""
    given = {party: response for party, response in responses.items() if size(response)}
    refused = tuple(party for party in responses if party not in given)
    return replace(responses, answers=given, missing=(*responses.missing, *refused))
