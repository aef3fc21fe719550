"""Sums of masked words, each of which alone reveals nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

import torch
from torch import Tensor

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.sealing import PROOF_BYTES
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, Message, check_exact
from colonnade.common.secure_aggregation.confirmed_sets import SetProof, SetProofs, relayed
from colonnade.common.secure_aggregation.masked_sums import (
    Masked,
    Members,
    confirmed,
    ring,
    smallest_set,
    words,
)
from colonnade.common.secure_aggregation.summed_sets import MemberRecord
from colonnade.server.aggregation.key_agreement import introduce
from colonnade.server.aggregation.sums import Found, Sums
from colonnade.server.training.context import ServerContext

_LONGEST_REST = 64  # rounds


async def blinded(ctx: ServerContext, clients: Cohort, width: int) -> Sums:
    """Relays the parties' keys; afterwards their values, `width` numbers a row, can be summed without seeing any.

    Raises:
        PartyLost: a party offers no key.
        ContractError: an offer is not a valid key, or is a party's second.
    """
    await introduce(ctx, clients)
    return Blinded(ctx, clients, width)


class Blinded:
    """Sums of masked words, over a set of parties that is settled before any of them responds.

    If one of the set does not respond there is no sum: it is left out of the next 2 rounds, then of 4,
    8, .. if it fails again.

    Args:
        ctx, clients: of the server side.
        width: of a row of values.
    """

    def __init__(self, ctx: ServerContext, clients: Cohort, width: int) -> None:
        self._ctx, self._clients = ctx, clients
        self._ring, self._words = ring(ctx.federation, ctx.schedule.privacy), words(ctx.federation, width)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, tuple(clients))
        self._failures: dict[str, int] = {}
        self._rests_until: dict[str, int] = {}

    async def training(self, round: int, batch: Tensor) -> Found:
        """Broadcasts the set, and sums over it."""
        members = self._members(round)
        if members is None:
            return Found(None, Responses({}, tuple(self._clients)))
        announced = Members(round, torch.tensor([name in members for name in self._clients], dtype=torch.uint8))
        await self._clients.broadcast(dict.fromkeys(members, announced))
        found = await self._confirm(round, members) or await self._sum(round, 0, len(batch), members)
        self._judge(round, members, found.answers)
        return found

    async def _confirm(self, round: int, members: Collection[str]) -> Found | None:
        """Relays the proofs that all were told this set; None if all have sent theirs, or none are needed."""
        if not confirmed(self._ctx.federation):
            return None
        sent = await self._clients.collect(SetProof, round, self._ctx.quorum, among=members, proof=PROOF_BYTES)
        sent = _without_refusals(sent, lambda proof: len(proof.proofs))
        for party, proof in sent.items():
            check_exact(party, proof, {"parties": len(self._clients)})
        if len(sent) < len(members):
            return Found(None, sent)
        proofs = relayed(tuple(self._clients), {party: proof.proofs for party, proof in sent.items()})
        await self._clients.broadcast({party: SetProofs(round, theirs) for party, theirs in proofs.items()})
        return None

    async def block(self, round: int, part: str, number: int, rows: int, among: Collection[str]) -> Found:
        """Sums over the round's set, which is `among`."""
        return await self._sum(round, self._ctx.schedule.stage(round, part, number), rows, among)

    async def _sum(self, round: int, stage: int, rows: int, members: Collection[str]) -> Found:
        responses = await self._clients.collect(Masked, round, self._ctx.quorum, among=members)
        responses = _without_refusals(responses, lambda masked: len(masked.words))
        for party, response in responses.items():
            check_exact(party, response, {"rows": rows, "words": self._words})
            if response.stage != stage:
                raise ContractError(party, "Masked", "stage", str(stage), str(response.stage))
        if len(responses) < len(members):
            return Found(None, responses)
        total = self._ring.total(
            torch.stack([response.words.view(self._ring.dtype) for response in responses.values()])
        )
        if not self._ring.fits(total):
            expected = f"masks that cancel, over {', '.join(members)}"
            raise ContractError("one of the parties", "Masked", "words", expected, "a sum out of range")
        return Found(self._ring.decode(total).float(), responses)

    def _members(self, round: int) -> list[str] | None:
        """The round's set in roster order; None if it is bound to a set of which a party is away."""
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

    def _judge(self, round: int, members: list[str], responses: Responses[Message]) -> None:
        """Excludes the parties that failed the round for a while, so that the set does not change back and forth."""
        for party in members:
            if party in responses:
                self._failures.pop(party, None)
                continue
            failures = self._failures[party] = self._failures.get(party, 0) + 1
            self._rests_until[party] = round + min(2**failures, _LONGEST_REST)
            self._ctx.telemetry.event("abandoned", round=round, party=party)


def _without_refusals(responses: Responses[M], size: Callable[[M], int]) -> Responses[M]:
    """The responses without those of size 0, which refuse the round."""
    given = {party: response for party, response in responses.items() if size(response)}
    refused = tuple(party for party in responses if party not in given)
    return replace(responses, answers=given, missing=(*responses.missing, *refused))
