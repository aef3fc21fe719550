"""A party's messages where the server needs only a sum: in the clear, or under masks that cancel in the sum.

The box of recovery after parties drop out: common/aggregation/recovery.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from colonnade.client.aggregation.key_agreement import Told, agree
from colonnade.client.training.context import ClientContext
from colonnade.common.aggregation.masked_sums import Summing, confirmed, smallest_set
from colonnade.common.aggregation.masks import Blinder, RoundKeys
from colonnade.common.aggregation.messages import Arrived, Masked, Members, SetProof, SetProofs
from colonnade.common.aggregation.recovery import SharedKeys, sharing
from colonnade.common.aggregation.subject import EVALUATION, subject
from colonnade.common.aggregation.summed_sets import MemberRecord, SetProver, marked
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.outgoing import Released, nothing
from colonnade.common.privacy.sum_noise import ring

Training = Callable[[int, Released], Message]  # (round, released) -> the protocol's message
Evaluation = Callable[[int, str, int, Released], Message]  # (round, part, block, released) -> likewise


class SumTerms(Protocol):
    async def begin(self, round: int, about: bytes) -> bool:
        """Receives the set of parties that a round sums over. False if we send nothing in this round.

        `about` is the hash of what the round sums over, as the server requested it (common/aggregation/subject.py).
        """

    async def train(self, round: int, released: Released) -> None:
        """Sends our values for the batch, float32 (rows, width), as the privacy stage released them."""

    def evaluation(self, round: int, part: str, block: int, released: Released) -> Message:
        """Message with our values for a block of validation or test rows."""

    async def more(self, round: int, stage: int, about: bytes, released: Released) -> None:
        """Sends values of another stage (from 1) of the round's training, over the same parties."""


async def terms(
    ctx: ClientContext,
    server: Link,
    aggregate: Summing,
    training: Training,
    evaluation: Evaluation,
    *,
    trains: bool = True,
) -> SumTerms:
    """The terms that the protocol's config selects, after the key agreement if sums are masked.

    `training` and `evaluation` make the protocol's own messages, for sums in the clear.
    """
    if aggregate == "clear":
        return _Clear(server, training, evaluation)
    blinded = _Blinded(ctx, server, (await agree(ctx, server)).masks, trains=trains)
    await blinded.share(ctx.round + 1)
    return blinded


class _Clear:
    def __init__(self, server: Link, training: Training, evaluation: Evaluation) -> None:
        self._server, self._training, self.evaluation = server, training, evaluation

    async def begin(self, round: int, about: bytes) -> bool:  # noqa: ARG002  # no set is needed
        return True

    async def train(self, round: int, released: Released) -> None:
        await self._server.send(self._training(round, released))

    async def more(self, round: int, stage: int, about: bytes, released: Released) -> None:  # noqa: ARG002  # no set
        await self._server.send(self.evaluation(round, "", stage, released))


class _Blinded:
    def __init__(self, ctx: ClientContext, server: Link, masks: dict[str, bytes], *, trains: bool) -> None:
        privacy, names = ctx.schedule.privacy, ctx.federation.names
        self._ctx, self._server, self._ring = ctx, server, ring(ctx.federation, privacy)
        self._least = max(smallest_set(ctx.federation), 0 if privacy is None else privacy.present)
        self._blinder = Blinder(ctx.name, names, masks, least=self._least)
        prover = SetProver(ctx.name, names, masks)
        self._record = MemberRecord(ctx.run_cache, ctx.session.run, names)
        self._opening: ShareOpening | None = None
        if (shares := sharing(ctx.federation)) is not None:
            keys = SharedKeys(ctx.name, names, masks, shares, least=self._least)
            self._opening = ShareOpening(ctx, server, keys, prover, self._record, least=self._least)
        self._prover = prover if self._opening is None and confirmed(ctx.federation) else None
        self._told = Told(ctx, server, trains=trains)
        self._set: frozenset[str] = frozenset()
        self._about = b""
        self._fresh = self._clipped = False
        if self._least == 2:  # the smallest threshold possible
            ctx.warn("sums may be of two parties: either that shows its part to the server shows the other's")

    async def share(self, round: int) -> None:
        if self._opening is not None:
            await self._opening.begin(round)

    async def begin(self, round: int, about: bytes) -> bool:
        """Receives the set S and confirms it. A round already bound to another set gets a warning and no values.

        Raises ContractError if the set is invalid, or smaller than agreed, SetError if another party does not confirm
        it.
        """
        self._about = self._told.bind(about)
        await self.share(round)
        names = self._ctx.federation.names
        announced = await self._server.recv(Members, round, parties=len(names))
        if announced is None:
            return False
        self._set = frozenset(marked(names, announced.members))
        if len(self._set) < self._least:
            expected = f"at least {self._least} parties, as federation.quorum and blinding have it"
            raise ContractError(SERVER, "Members", "members", expected, str(len(self._set)))
        if self._ctx.name not in self._set:
            raise ContractError(SERVER, "Members", "members", f"{self._ctx.name} among them", "it is not")
        if not self._may_sum(round):
            before = ", ".join(sorted(self._record.bound(round) or ()))
            self._ctx.warn(f"round {round} may have been summed over {before}: nothing is sent for it over another set")
            await self._server.send(self._refusal(round))
            return False
        return self._prover is None or await self._confirm(round, self._prover)

    def _may_sum(self, round: int) -> bool:
        """Records the round's set durably; False if the round is already bound to another set."""
        self._fresh = self._record.bound(round) is None
        return self._record.enter(round, self._set)

    def _refusal(self, round: int) -> Message:
        if self._prover is not None:
            return SetProof(round, 0, torch.empty(0, PROOF_BYTES, dtype=torch.uint8))
        return Masked(round, 0, self._ctx.admit_masked(nothing(0, 0, dtype=torch.int32)))

    async def _confirm(self, round: int, prover: SetProver) -> bool:
        """Proves the set to its other members, and waits for their proofs. False if the server moves on without us."""
        await self._server.send(SetProof(round, 0, prover.proofs(round, self._set, about=self._about)))
        received = await self._server.recv(SetProofs, round, parties=len(self._ctx.federation.names), proof=PROOF_BYTES)
        if received is None:
            return False
        prover.check(round, self._set, received.proofs, about=self._about)
        return True

    async def train(self, round: int, released: Released) -> None:
        """Masks and sends values as stage 0; with recovery, opens shares for the parties whose words arrived."""
        if self._opening is None:
            await self._server.send(self._masked(round, 0, self._about, released))
            return
        await self._server.send(self._masked(round, 0, self._about, released, self._opening.of_round(round)))
        settled = await self._opening.settle(round, self._set, self._about, fresh=self._fresh)
        self._set = settled or self._set

    async def more(self, round: int, stage: int, about: bytes, released: Released) -> None:
        await self._server.send(self._masked(round, stage, self._told.bind(about), released))

    def evaluation(self, round: int, part: str, block: int, released: Released) -> Message:
        schedule = self._ctx.schedule
        about = subject(EVALUATION, schedule.blocks(part)[block], part, block)
        return self._masked(round, schedule.stage(round, part, block), self._told.bind(about), released)

    def _masked(
        self, round: int, stage: int, about: bytes, released: Released, keys: RoundKeys | None = None
    ) -> Masked:
        words = functional.pad(self._encoded(released), (0, 0, 0, 1))  # the line of zeros
        words = self._blinder.blind(words, round, stage, self._set, about, keys)
        return Masked(round, stage, self._ctx.admit_masked(words.viewed(torch.int32), released))

    def _encoded(self, released: Released) -> Tensor:
        """Encodes released values as words; values with a share of the sum's noise are integer steps already."""
        if released.steps is not None:
            return self._ring.wrap(released.steps)
        values = released.detach().cpu()
        self._warn_of_clipping(values)
        return self._ring.encode(values)

    def _warn_of_clipping(self, values: Tensor) -> None:
        if not self._clipped and bool((values.abs() > self._ring.bound).any()):
            self._clipped = True
            largest = float(values.abs().max())
            self._ctx.warn(
                f"a value of {largest:.4g} was clipped to federation.blinding.bound = {self._ring.bound:g}, "
                "and so will others be"
            )


class ShareOpening:
    """Shares keys ahead of the rounds, confirms whose words arrived, and opens shares for that set alone."""

    def __init__(
        self,
        ctx: ClientContext,
        server: Link,
        keys: SharedKeys,
        prover: SetProver,
        record: MemberRecord,
        *,
        least: int,
    ) -> None:
        self._ctx, self._server, self._keys, self._prover = ctx, server, keys, prover
        self._record, self._least, self._opened = record, least, 0

    async def begin(self, round: int) -> None:
        """Sends the shares for the next block of rounds. Raises ContractError if the server named a second set in the
        previous round, after shares were opened for the first.
        """
        if self._opened and await self._server.recv(Arrived, self._opened) is not None:
            said = "one set, for which shares were opened", "another: both shares of a party would be opened"
            raise ContractError(SERVER, "Arrived", "members", *said)
        if (first := self._keys.due(round)) is not None:
            await self._server.send(self._keys.deal(first))

    def of_round(self, round: int) -> RoundKeys:
        return self._keys.of_round(round)

    async def settle(self, round: int, laid: frozenset[str], about: bytes, *, fresh: bool) -> frozenset[str] | None:
        """Confirms which parties are summed, and opens shares once every party in that set has confirmed it.

        The set starts as all parties over which the words are masked. The server names a smaller set if a party drops
        out before it has sent its words or confirmed. A set with an additional party is refused: that party's other
        share may already be open.

        Args:
            laid: the parties over which the words are masked, from the record of sets.
            fresh: True for a new round, whose set may still shrink.

        Returns:
            The set; None if the server moves on without us, or the round may have been summed over another set.

        Raises:
            ContractError: the set is invalid; names the party for which both shares were requested.
            SetError: another party does not confirm it.
        """
        parties, summed = len(self._ctx.federation.names), laid
        kinds: Mapping[type[Message], Mapping[str, int]] = {
            Arrived: {"parties": parties},
            SetProofs: {"parties": parties, "proof": PROOF_BYTES},
        }
        await self._server.send(SetProof(round, 0, self._prover.proofs(round, summed, laid, about=about)))
        while True:
            received = await self._server.recv_one(kinds, round)
            if isinstance(received, Arrived):
                summed = self._checked(received, summed)
                if not fresh:
                    before = ", ".join(sorted(laid))
                    self._ctx.warn(
                        f"round {round} may have been summed over {before}: no shares are opened for another set"
                    )
                    await self._server.send(SetProof(round, 0, torch.empty(0, PROOF_BYTES, dtype=torch.uint8)))
                    return None
                self._record.narrow(round, summed)
                await self._server.send(SetProof(round, 0, self._prover.proofs(round, summed, laid, about=about)))
            elif isinstance(received, SetProofs):
                self._prover.check(round, summed, received.proofs, laid, about=about)
                self._opened = round
                await self._server.send(self._keys.open(round, laid, summed))
                return summed
            else:
                return None

    def _checked(self, announced: Arrived, before: frozenset[str]) -> frozenset[str]:
        summed = frozenset(marked(self._ctx.federation.names, announced.members))
        if self._ctx.name not in summed:
            raise ContractError(SERVER, "Arrived", "members", f"{self._ctx.name} among them", "it is not")
        if others := sorted(summed - before):
            got = f"also {', '.join(others)}: both shares would be opened"
            raise ContractError(SERVER, "Arrived", "members", "a part of the set that was confirmed before", got)
        if len(summed) < self._least:
            expected = f"at least {self._least} parties, as federation.quorum and blinding have it"
            raise ContractError(SERVER, "Arrived", "members", expected, str(len(summed)))
        if summed == before:
            raise ContractError(SERVER, "Arrived", "members", "a smaller set than before", "the same")
        return summed
