"""Agreement on a kept alignment, party side: names the one that the party holds, and uses its rows if all hold it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.common.alignment.messages import BLOCK, NONCE, Held, Offers, Positions, Reused, Stated, Statements
from colonnade.common.alignment.scratch import distinct
from colonnade.common.alignment.store import KeptAlignment, statement
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.pki.identity import Identity
from colonnade.common.crypto.sealing import Session
from colonnade.common.crypto.signatures import Signer, Verifier
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import M
from colonnade.common.messaging.outgoing import MaskedTensor, nothing
from colonnade.common.messaging.raw import take_apart, to_bytes, to_tensor

_NONE = nothing(0, dtype=torch.int64)


@dataclass(frozen=True)
class ReuseTerms:
    """Result of the agreement.

    Args:
        nonces: one of each member, for the identity of a new alignment.
        rows: this party's rows from the kept alignment, int64; None if rows are aligned anew.
        number: the kept alignment's.
        others: number of the server's keys that are not aligned yet.
    """

    nonces: tuple[bytes, ...]
    rows: Tensor | None
    number: str
    others: int
    round: int


@dataclass
class PartyReuse:
    """One agreement.

    Args:
        federation: the agreed section, with the present parties.
        partial: for predictions: True if the server may use some of its rows only, and align other keys.
    """

    name: str
    federation: FederationConfig
    policy: PolicyConfig
    session: Session
    server: Link
    identity: Identity | None = None
    kept: KeptAlignment | None = None
    partial: bool = False
    admit_masked: Callable[[MaskedTensor], MaskedTensor] = lambda value: value
    _round: int = field(default=1, init=False)

    async def __call__(self) -> ReuseTerms:
        """Agrees with the server and, by their signatures, with the other parties.

        Raises:
            ContractError: the server names an alignment that we do not hold, or rows that are not in it.
            ForgedError: another party has not stated that it holds the alignment.
        """
        nonce = os.urandom(NONCE)
        await self.server.send(Held(self._round, "" if self.kept is None else self.kept.identity, to_tensor(nonce)))
        offers = await self._hear(Offers, members=len(self.federation.names) + 1, nonce=NONCE)
        nonces = tuple(to_bytes(one) for one in offers.nonces)
        if nonces[1 + self.federation.names.index(self.name)] != nonce:
            raise ContractError(SERVER, "Offers", "nonces", f"that of {self.name} in its place", "another")
        if not offers.identity:
            return ReuseTerms(nonces, None, "", 0, self._round)
        kept = self._check(offers)
        await self._state(kept.identity, nonces)
        rows = kept.rows
        if offers.rows < len(rows):
            rows = rows[await self._wanted(offers.rows, len(rows))]
        if not offers.others:
            self.policy.refuse_few(self.name, len(rows), predicting=self.partial)
        return ReuseTerms(nonces, rows, offers.number, offers.others, self._round)

    async def confirm(self, rows: int) -> int:
        """Tells the server that the rows are used, and records it in the ledger. Returns the last round used."""
        assert self.kept is not None  # otherwise no rows are reused
        self._round += 1
        await self.server.send(Reused(self._round, self.kept.identity, rows))
        return self._round

    def _check(self, offers: Offers) -> KeptAlignment:
        if self.kept is None or offers.identity != self.kept.identity:
            expected = "none: we keep none" if self.kept is None else f"{self.kept.identity[:16]}…, which we keep"
            raise ContractError(SERVER, "Offers", "identity", expected, f"{offers.identity[:16]}…")
        if not offers.number:
            raise ContractError(SERVER, "Offers", "number", "the alignment's own", "none")
        there = len(self.kept.rows)
        if not self.partial and (offers.rows != there or offers.others):
            raise ContractError(SERVER, "Offers", "rows", f"all {there} of the kept alignment", str(offers.rows))
        if not 0 <= offers.rows <= there or offers.others < 0:
            raise ContractError(SERVER, "Offers", "rows", f"at most {there}", str(offers.rows))
        return self.kept

    async def _state(self, identity: str, nonces: tuple[bytes, ...]) -> None:
        """States that we hold the alignment, and refuses it unless every other party has stated the same."""
        self._round += 1
        signer = Signer(self.identity)
        signature = signer.sign(statement(self.session, self.federation, self.name, identity, nonces))
        await self.server.send(Stated(self._round, to_tensor(signer.certificate), to_tensor(signature)))
        statements = await self._hear(Statements, members=len(nonces))
        if self.identity is not None:
            self._verify(statements, identity, nonces)

    def _verify(self, statements: Statements, identity: str, nonces: tuple[bytes, ...]) -> None:
        try:
            certificates = take_apart(statements.certificates, statements.certificate_lengths)
            signatures = take_apart(statements.signatures, statements.signature_lengths)
        except ValueError as wrong:
            raise ContractError(SERVER, "Statements", "lengths", str(wrong), "others") from None
        for seat, (name, pin) in enumerate(self.federation.parties.items(), start=1):
            if name == self.name:
                continue
            content = statement(self.session, self.federation, name, identity, nonces)
            verifier = Verifier(name, to_bytes(certificates[seat]), pin)
            verifier.check(f"the statement that {name} holds the kept alignment", content, to_bytes(signatures[seat]))

    async def _wanted(self, count: int, kept: int) -> Tensor:
        """Positions in the kept alignment that the server uses, int64 (count,): received in blocks, each once."""
        found = torch.empty(count, dtype=torch.int64)
        for at in range(0, count, BLOCK):
            size = min(BLOCK, count - at)
            self._round += 1
            positions = (await self._hear(Positions, keys=size)).positions
            if int(positions.min()) < 0 or int(positions.max()) >= kept:
                raise ContractError(SERVER, "Positions", "positions", f"0 to {kept - 1}", "others")
            found[at : at + size] = positions
            await self.server.send(Positions(self._round, self.admit_masked(_NONE)))
        if not distinct(found, kept):
            raise ContractError(SERVER, "Positions", "positions", "every row once", "some again")
        return found

    async def _hear(self, kind: type[M], **dims: int) -> M:
        came = await self.server.recv(kind, self._round, **dims)
        if came is None:
            raise ContractError(SERVER, kind.__name__, "", "the rest of the alignment", "a round of the protocol")
        return came
