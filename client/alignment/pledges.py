"""Pledges of an alignment, party side: commits to every list that the party sends, and checks those that arrive."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from colonnade.common.alignment.checks.pledge import PledgeBook
from colonnade.common.alignment.messages import DIGEST, Pledge, Pledges
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.alignment.work import Work
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.errors import ContractError
from colonnade.common.messaging.raw import take_apart, to_bytes, to_tensor


@dataclass
class PartyPledging:
    """A party's pledges in one alignment."""

    book: PledgeBook
    ring: PsiRing
    hand: PsiMember
    server: Link
    work: Work
    keys: bytes = b""

    async def exchange(self, stage: int, round: int, places: bytes = b"") -> int:
        """Pledges the list that we send in a stage, and records all members' pledges. Returns the last round used.

        Args:
            stage: of the list; after the last stage, `places` are pledged.
            places: where we found the planted keys.
        """
        blocks = self.ring.blocks() if not stage else 1
        for block in range(blocks):
            round, last = round + 1, block == blocks - 1
            if not stage:
                await self.work(partial(self.hand.prepare, block))
            await self.server.send(
                self._pledge(stage, round, places or self.hand.sent) if last else Pledge(round, *[_NONE] * 4)
            )
            members = self.ring.members if last else 0
            pledges = await self.server.recv(Pledges, round, members=members, digest=DIGEST)
            if pledges is None:
                raise ContractError(SERVER, "Pledges", "", "the rest of the alignment", "a round of the protocol")
            if last:
                self._enter(stage, pledges, places or self.hand.sent)
        return round

    def check(self, stage: int) -> None:
        """Compares the list that arrived in a stage with its sender's pledge. Raises ContractError."""
        self.book.check(stage, self.hand.came)

    def _pledge(self, stage: int, round: int, digest: bytes) -> Pledge:
        certificate, keys = (b"", b"") if stage else (self.book.signer.certificate, self.keys)
        signature = self.book.sign(stage, digest, keys)
        return Pledge(round, *map(to_tensor, (digest, certificate, signature, keys)))

    def _enter(self, stage: int, pledges: Pledges, digest: bytes) -> None:
        try:
            certificates = take_apart(pledges.certificates, pledges.certificate_lengths)
            signatures = take_apart(pledges.signatures, pledges.signature_lengths)
        except ValueError as wrong:
            raise ContractError(SERVER, "Pledges", "lengths", str(wrong), "others") from None
        own = to_bytes(pledges.digests[self.book.seat])
        if own != digest:
            raise ContractError(SERVER, "Pledges", "digests", f"that of {self.book.name} in its place", "another")
        keys = [b"", *map(to_bytes, pledges.keys)] if not stage and self.keys else []
        if keys and (len(keys) != len(pledges.digests) or keys[self.book.seat] != self.keys):
            raise ContractError(SERVER, "Pledges", "keys", f"that of {self.book.name} in its place", "another")
        said, papers, signed = (
            [to_bytes(one) for one in column] for column in (pledges.digests, certificates, signatures)
        )
        self.book.enter(stage, said, papers, signed, keys)


_NONE = to_tensor(b"")
