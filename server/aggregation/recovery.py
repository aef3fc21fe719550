"""Recovery of sums without vanished parties, server side. The box: common/aggregation/recovery.py."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from colonnade.common.aggregation.masked_sums import smallest_set
from colonnade.common.aggregation.messages import BLOCK, SECRETS, SHARE_BYTES, Arrived, OpenedShares, SealedShares
from colonnade.common.aggregation.recovery import Recovered, first_of_block, recover
from colonnade.common.aggregation.shamir import Sharing
from colonnade.common.aggregation.summed_sets import MemberRecord, marks
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import Cohort
from colonnade.server.aggregation.set_proofs import relay_proofs
from colonnade.server.training.context import ServerContext


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
