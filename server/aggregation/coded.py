"""Coded computing, server side: relays sealed shares, and decodes sums from the first responses."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from colonnade.common.aggregation import fixed_point
from colonnade.common.aggregation.lagrange import CodedRows, LagrangeCode
from colonnade.common.aggregation.masked_sums import confirmed, smallest_set
from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.aggregation.summed_sets import MemberRecord, marked, marks, relayed
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.crypto.signatures import Signer
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M, check_exact
from colonnade.common.messaging.raw import lay_out, to_tensor
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
from colonnade.server.training.context import ServerContext


class CodedSums:
    """Sums of all parties' embeddings, stage by stage. `signer` comes from the session's key agreement."""

    def __init__(self, ctx: ServerContext, clients: Cohort, cfg: Config, code: LagrangeCode, signer: Signer) -> None:
        self._ctx, self._clients, self._code, self._cfg, self._signer = ctx, clients, code, cfg, signer
        self._names, self._least = tuple(clients), smallest_set(ctx.federation)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, self._names)
        self._all = Quorum(limit=ctx.federation.timeouts.answer)
        self._enough = Quorum(need=code.threshold, limit=ctx.federation.timeouts.answer)
        self._confirming = cfg.confirming(len(self._names)) if confirmed(ctx.federation) else 0

    async def prepare(self, rows: CodedRows) -> None:
        """Steps 2 to 9: makes data shares, unless every party still holds shares of the same sharing."""
        round, ctx = self._ctx.round, self._ctx
        held = await self._clients.collect(Prepared, round, self._all)
        numbers = {response.held for response in held.values()}
        anew = len(numbers) > 1 or "" in numbers
        sharing = secrets.token_hex(8) if anew else numbers.pop()
        columns = torch.tensor([self._columns(party, response) for party, response in held.items()])
        await self._clients.broadcast(Preparation(round, sharing, anew, columns))
        chunks = len(rows.chunks(self._cfg.chunk)) if anew else 0
        for stage in range(chunks):
            await self._pass_on(round, stage, self._all)
            ctx.telemetry.event("preparing", chunk=stage + 1, chunks=chunks)

    async def agree(self, round: int, stage: int) -> Tensor | None:
        """Steps 18 to 20: relays model shares, and settles the set of parties whose models the stage sums.

        The set is every party or the fastest ones, as federation.quorum says; a party whose share could not be opened
        everywhere is left out for all. Parties confirm the set to each other, unless it can only be all. A repeated
        stage waits for the parties of its first set.

        Returns the set, uint8 (parties,); None if no set is large enough, if the stage's earlier set is incomplete, or
        if too few parties confirm the set. Raises PartyLost if too few parties share or report what they opened.
        """
        bound = self._record.bound(place(round, stage))
        again = Quorum(need=0, grace=self._ctx.federation.timeouts.answer)
        shares = await self._pass_on(round, stage, *((self._ctx.quorum, None) if bound is None else (again, bound)))
        if not self._can_sum(round, bound, shares):
            return None
        late = partial(_before, stage)
        opened = await self._clients.collect(Opened, round, self._enough, stale=late, parties=len(self._names))
        for party, response in opened.items():
            _check_stage(party, response, stage)
        everywhere = torch.stack([response.senders for response in opened.values()]).eq(1).all(0).to(torch.uint8)
        owners = frozenset(marked(self._names, everywhere))
        unopened = self._unopened(shares, opened)
        if not self._can_sum(round, bound, owners, unopened):
            return None
        members = owners if bound is None else bound
        self._record.enter(place(round, stage), members)
        senders = marks(self._names, members)
        if left_out := [name for name in self._names if name not in members]:
            self._ctx.telemetry.event("partial_sum", round=round, stage=stage, without=left_out, unopened=unopened)
        signature = self._signer.sign(signed_senders(self._ctx.session, round, stage, senders))
        await self._clients.broadcast(Senders(round, stage, senders, to_tensor(signature)))
        return senders if await self._confirm(round, stage) else None

    async def _confirm(self, round: int, stage: int) -> bool:
        """Relays the parties' proofs of the set once enough have sent theirs. False if too few do."""
        if not self._confirming:
            return True
        size, late = (lambda _party, proof: len(proof.proofs)), partial(_before, stage)
        sent = await self._first(SetProof, round, self._confirming, size, stale=late, proof=PROOF_BYTES)
        for party, proof in sent.items():
            check_exact(party, proof, {"parties": len(self._names)})
            _check_stage(party, proof, stage)
        if len(sent) < self._confirming:
            self._ctx.telemetry.event("abandoned", round=round, party=sent.missing[0])
            return False
        proofs = relayed(self._names, {party: proof.proofs for party, proof in sent.items()}, self._names)
        await self._clients.broadcast({party: SetProofs(round, stage, theirs) for party, theirs in proofs.items()})
        return True

    async def decode(
        self, round: int, stage: int, number: int, coded: int, senders: Tensor
    ) -> tuple[Tensor | None, Responses[Answer]]:
        """Steps 27 to 30: decodes the average embedding of a block of coded rows, `coded` of them, from the first R
        responses.

        Returns float32 (K * coded, width) in segment order, or None if too many refuse; and the responding parties.
        """
        check = partial(self._check, stage=stage, number=number, coded=coded, senders=hash_of(senders))
        earlier = lambda answer: (answer.stage, answer.block) < (stage, number)  # noqa: E731
        responses = await self._first(Answer, round, self._code.threshold, check, stale=earlier)
        if len(responses) < self._code.threshold:
            return None, responses
        points = [self._names.index(party) for party in responses]
        values = torch.stack([response.h.reshape(-1) for response in responses.values()]).to(torch.int64)
        sums = self._code.decode(points, values).view(-1, self._cfg.embedding)
        self._check_surplus(points, values)
        bits = self._cfg.data_bits + self._cfg.weight_bits
        return fixed_point.dequantise(self._code.field, sums, bits, len(self._names)).float(), responses

    async def _first(
        self,
        kind: type[M],
        round: int,
        need: int,
        size: Callable[[str, M], int],
        *,
        stale: Callable[[M], bool],
        **dims: int,
    ) -> Responses[M]:
        """The messages of the first `need` parties that do not refuse (size 0), or of as many as do not."""
        awaited, received = set(self._names), dict[str, M]()
        while True:
            quorum = replace(self._enough, need=need - len(received))
            found = await self._clients.collect(kind, round, quorum, among=awaited, stale=stale, **dims)
            received.update({party: message for party, message in found.items() if size(party, message)})
            awaited.difference_update(found)
            if len(received) >= need or len(received) + len(awaited) < need:
                return replace(found, answers=received, missing=tuple(n for n in self._names if n not in received))

    async def _pass_on(
        self, round: int, stage: int, quorum: Quorum, among: Collection[str] | None = None
    ) -> Responses[Shares]:
        others, late = len(self._names) - 1, partial(_before, stage)
        shares = await self._clients.collect(Shares, round, quorum, among=among, stale=late, parties=others)
        for party, response in shares.items():
            _check_stage(party, response, stage)
        for party in await self._clients.collect(Shares, round, Quorum(need=0), among=set(shares), stale=late):
            raise ContractError(party, "Shares", "", "one a stage", "a second")
        await self._clients.broadcast({name: self._bundle(name, round, stage, shares) for name in self._names})
        return shares

    def _bundle(self, receiver: str, round: int, stage: int, shares: Mapping[str, Shares]) -> Bundle:
        """The boxes for one party, by sender. A sender's boxes skip itself, so positions after it shift by one."""
        index, nothing = self._names.index(receiver), torch.empty(0, dtype=torch.uint8)
        boxes = [
            shares[name].boxes[index - (index > place)] if name in shares and name != receiver else nothing
            for place, name in enumerate(self._names)
        ]
        return Bundle(round, stage, *lay_out(boxes))

    def _columns(self, party: str, response: Prepared) -> int:
        if not 1 <= response.columns <= self._cfg.columns:
            raise ContractError(party, "Prepared", "columns", f"1 to {self._cfg.columns}", str(response.columns))
        return response.columns

    def _unopened(self, shares: Collection[str], opened: Mapping[str, Opened]) -> dict[str, list[str]]:
        """By sender: the parties that report that they could not open its share."""
        said = {party: marked(self._names, response.senders) for party, response in opened.items()}
        found = {sender: [party for party, had in said.items() if sender not in had] for sender in shares}
        return {sender: by for sender, by in found.items() if by}

    def _can_sum(
        self,
        round: int,
        bound: Collection[str] | None,
        owners: Collection[str],
        unopened: Mapping[str, list[str]] | None = None,
    ) -> bool:
        """True if the parties with shares form a set; else records the missing ones, and who could not open theirs."""
        wanted = self._names if bound is None else bound
        if len(owners) >= self._least if bound is None else set(owners) >= set(bound):
            return True
        for party in sorted(set(wanted).difference(owners)):
            by = (unopened or {}).get(party, [])
            self._ctx.telemetry.event("abandoned", round=round, party=party, unopened_by=by)
        return False

    def _check(self, party: str, response: Answer, *, stage: int, number: int, coded: int, senders: str) -> int:
        """Number of coded rows in a checked response; 0 for a refusal."""
        if len(response.h):
            check_exact(party, response, {"coded": coded, "width": self._cfg.embedding})
        if (response.stage, response.block) != (stage, number):
            got = f"{response.stage} {response.block}"
            raise ContractError(party, "Answer", "stage, block", f"{stage} {number}", got)
        if response.senders != senders:
            raise ContractError(party, "Answer", "senders", f"{senders}, the set that was announced", response.senders)
        if len(response.h) and not 0 <= int(response.h.min()) <= int(response.h.max()) < self._code.field.p:
            raise ContractError(party, "Answer", "h", f"elements below {self._code.field.p}", "others")
        return len(response.h)

    def _check_surplus(self, points: list[int], values: Tensor) -> None:
        """Checks that surplus responses are on the same polynomial; names all unless a single one explains it."""
        if not self._code.strays(points, values):
            return
        suspects = points
        if len(points) > self._code.threshold + 1:  # with only one surplus response, any R agree
            rest = [[place for place in range(len(points)) if place != left_out] for left_out in range(len(points))]
            agree = [not self._code.strays([points[place] for place in some], values[some]) for some in rest]
            suspects = [point for point, alone in zip(points, agree, strict=True) if alone] or points
        names = ", ".join(self._names[point] for point in suspects)
        liar = names if len(suspects) == 1 else f"one of {names}"
        raise ContractError(liar, "Answer", "h", "what the other answers make it", "something else")


def _before(stage: int, message: Shares | Opened | SetProof) -> bool:
    return message.stage < stage


def _check_stage(party: str, message: Shares | Opened | SetProof, stage: int) -> None:
    if message.stage != stage:
        raise ContractError(party, type(message).__name__, "stage", str(stage), str(message.stage))
