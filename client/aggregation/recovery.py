"""Recovery of sums without vanished parties, party side. The box: common/secure_aggregation/recovery.py."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from colonnade.client.training.context import ClientContext
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.sealing import PROOF_BYTES
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.secure_aggregation.confirmed_sets import SetProof, SetProofs, SetProver
from colonnade.common.secure_aggregation.masks import RoundKeys
from colonnade.common.secure_aggregation.recovery import Arrived, SharedKeys
from colonnade.common.secure_aggregation.summed_sets import MemberRecord


class ShareOpening:
    """Shares keys ahead of the rounds, confirms whose words arrived, and opens shares for that set alone.

    Args:
        ctx, server: of the party side.
        keys: our own, of the session.
        prover: confirms sets.
        record: of the sets of rounds that may have been summed.
        least: minimum parties in a sum.
    """

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
        """Sends the shares of a block of rounds that comes next, and refuses a server that asked twice in a round.

        Raises:
            ContractError: it has named a second set in the round before, of which shares were opened for the first.
        """
        if self._opened and await self._server.recv(Arrived, self._opened) is not None:
            said = "one set, for which shares were opened", "another: both shares of a party would be opened"
            raise ContractError(SERVER, "Arrived", "members", *said)
        if (first := self._keys.due(round)) is not None:
            await self._server.send(self._keys.deal(first))

    def of_round(self, round: int) -> RoundKeys:
        """Keys of the masks of a round."""
        return self._keys.of_round(round)

    async def settle(self, round: int, laid: frozenset[str]) -> frozenset[str] | None:
        """Confirms U, and opens shares once everybody in U has confirmed it.

        The server names a smaller set if a party vanishes before it has confirmed. A set with anybody else than before
        is refused: the other share of that party may be open.

        Returns:
            U; None if the server goes on without us, or the round may have been summed over another set.

        Raises:
            ContractError: the set is invalid; names the party of which both shares were asked for.
            SetError: another party does not confirm it.
            EnvironmentFault: the set cannot be written to the disk.
        """
        parties = len(self._ctx.federation.names)
        kinds: Mapping[type[Message], Mapping[str, int]] = {
            Arrived: {"parties": parties},
            SetProofs: {"parties": parties, "proof": PROOF_BYTES},
        }
        bound, summed = self._record.bound(round), None
        while True:
            received = await self._server.recv_one(kinds, round)
            if isinstance(received, Arrived):
                summed = self._checked(received, laid, summed)
                if not self._enter(round, bound, summed):
                    await self._server.send(SetProof(round, torch.empty(0, PROOF_BYTES, dtype=torch.uint8)))
                    return None
                await self._server.send(SetProof(round, self._prover.proofs(round, summed, laid)))
            elif isinstance(received, SetProofs):
                if summed is None:
                    raise ContractError(SERVER, "SetProofs", "", "a set to confirm first", "none")
                self._prover.check(round, summed, received.proofs, laid)
                self._opened = round
                await self._server.send(self._keys.open(round, laid, summed))
                return summed
            else:
                return None

    def _checked(self, announced: Arrived, laid: frozenset[str], before: frozenset[str] | None) -> frozenset[str]:
        names = self._ctx.federation.names
        summed = frozenset(name for name, is_in in zip(names, announced.members.tolist(), strict=True) if is_in)
        if self._ctx.name not in summed:
            raise ContractError(SERVER, "Arrived", "members", f"{self._ctx.name} among them", "it is not")
        if others := sorted(summed - (laid if before is None else before)):
            expected = "parties of the round" if before is None else "a part of the set that was confirmed before"
            got = f"also {', '.join(others)}" + ("" if before is None else ": both shares would be opened")
            raise ContractError(SERVER, "Arrived", "members", expected, got)
        if len(summed) < self._least:
            expected = f"at least {self._least} parties, as federation.quorum and blinding have it"
            raise ContractError(SERVER, "Arrived", "members", expected, str(len(summed)))
        if summed == before:
            raise ContractError(SERVER, "Arrived", "members", "a smaller set than before", "the same")
        return summed

    def _enter(self, round: int, bound: frozenset[str] | None, summed: frozenset[str]) -> bool:
        """Writes the set to the disk before it is confirmed. False if the round is bound to another."""
        if bound is not None:
            if bound != summed:
                before = ", ".join(sorted(bound))
                self._ctx.warn(
                    f"round {round} may have been summed over {before}: no shares are opened for another set"
                )
            return bound == summed
        if self._record.bound(round) is None:
            return self._record.enter(round, summed)
        self._record.narrow(round, summed)
        return True
