"""Recovery of sums after parties drop out, party side. The box: common/aggregation/recovery.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from colonnade.client.training.context import ClientContext
from colonnade.common.aggregation.confirmed_sets import SetProver
from colonnade.common.aggregation.masks import RoundKeys
from colonnade.common.aggregation.messages import Arrived, SetProof, SetProofs
from colonnade.common.aggregation.recovery import SharedKeys
from colonnade.common.aggregation.summed_sets import MemberRecord, marked
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message


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
        """Sends the shares for the next block of rounds.

        Raises:
            ContractError: the server named a second set in the previous round, after shares were opened for the first.
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
