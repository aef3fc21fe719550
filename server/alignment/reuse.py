"""Agreement on a stored alignment, server side: compares what all members hold, and shows every party who says so."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.common.alignment.messages import BLOCK, NONCE, Held, Offers, Positions, Reused, Stated, Statements
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import SERVER, Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError, PartyAway
from colonnade.common.messaging.message import M
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import lay_out, to_bytes, to_tensor

_POSITIONS = "positions in an alignment that all members keep"


@dataclass(frozen=True)
class Agreed:
    """Result of the agreement.

    Args:
        nonces: one of each member, for the identity of a new alignment.
        number: the resulting alignment's; "" if rows are aligned anew.
        without: members that hold no alignment, or another than most; empty if no member holds one.
        round: the last one used.
    """

    nonces: tuple[bytes, ...]
    number: str
    without: tuple[str, ...]
    round: int


@dataclass
class ServerReuse:
    """One agreement among the present parties.

    Args:
        identity: the alignment that the server holds and would use; "" for none.
        rows: number of its rows that are used.
        wanted: their positions in it, int64; None for all rows.
        others: number of further keys to align.
    """

    federation: FederationConfig
    cohort: Cohort
    identity: str = ""
    rows: int = 0
    wanted: Tensor | None = None
    others: int = 0
    _round: int = field(default=1, init=False)

    async def __call__(self) -> Agreed:
        """Compares the members' statements, and sends the positions that are used."""
        held = await self._hear(Held)
        for party, own in held.items():
            if len(own.nonce) != NONCE:
                raise ContractError(party, "Held", "nonce", f"{NONCE} bytes", str(len(own.nonce)))
        identities = {SERVER: self.identity, **{party: own.identity for party, own in held.items()}}
        same = bool(self.identity) and len(set(identities.values())) == 1
        number, nonces = secrets.token_hex(8) if same else "", [os.urandom(NONCE)]
        nonces += [to_bytes(own.nonce) for own in held.values()]
        offers = Offers(
            self._round,
            self.identity if same else "",
            number,
            rows=self.rows if same else 0,
            others=self.others if same else 0,
            nonces=torch.stack([to_tensor(nonce) for nonce in nonces]),
        )
        await self.cohort.broadcast(offers)
        if same:
            await self._show_statements()
        if same and self.wanted is not None:
            await self._send(self.wanted)
        return Agreed(tuple(nonces), number, () if same else _without(identities), self._round)

    async def confirmed(self) -> int:
        """Waits until every party uses its stored rows. Returns the last round used. Raises as `__call__`."""
        self._round += 1
        for party, reused in (await self._hear(Reused)).items():
            if reused.identity != self.identity or reused.rows != self.rows:
                raise ContractError(party, "Reused", "rows", f"{self.rows} of the alignment that all keep", "others")
        return self._round

    async def _show_statements(self) -> None:
        """Shows every party the others' signed statements that they hold the alignment."""
        self._round += 1
        stated, none = (await self._hear(Stated)).values(), to_tensor(b"")
        certificates = lay_out([none, *(own.certificate for own in stated)])
        signatures = lay_out([none, *(own.signature for own in stated)])
        await self.cohort.broadcast(Statements(self._round, *certificates, *signatures))

    async def _send(self, wanted: Tensor) -> None:
        for block in torch.split(wanted, BLOCK):
            self._round += 1
            await self.cohort.broadcast(Positions(self._round, MaskedTensor(block.clone(), _POSITIONS)))
            await self._hear(Positions, keys=0)

    async def _hear(self, kind: type[M], keys: int | None = None) -> Responses[M]:
        patience = Quorum(limit=self.federation.timeouts.answer)
        dims = {} if keys is None else {"keys": keys}
        responses = await self.cohort.collect(kind, self._round, patience, among=None, stale=None, **dims)
        if responses.missing:
            raise PartyAway(responses.missing[0], "it is gone while members agree on an alignment")
        return responses


def _without(identities: dict[str, str]) -> tuple[str, ...]:
    """The members that do not hold the most frequent alignment; empty if no member holds any."""
    there = [identity for identity in identities.values() if identity]
    if not there:
        return ()
    usual = max(there, key=there.count)
    return tuple(member for member, identity in identities.items() if identity != usual)
