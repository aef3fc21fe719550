"""Key agreement between the parties, the server's side: it passes their offers on."""

from __future__ import annotations

import torch

from common.agreement import KeyOffer, KeyRing
from common.conversation import Cohort
from common.crypto.sealing import KEY_BYTES
from common.crypto.signatures import Signer
from common.errors import ContractError
from common.harvest import Quorum
from common.raw import lay_out, to_tensor
from server.context import ServerContext


async def introduce(ctx: ServerContext, clients: Cohort) -> Signer:
    """Tells every party the others' public keys. What they seal with them, the server cannot read.

    Returns:
        What the server signs with for as long as these parties stay connected.

    Raises:
        PartyLost: somebody offers no key.
        ContractError: what it offers is none, or it has offered another already.
    """
    patience = Quorum(limit=ctx.federation.timeouts.answer)
    offers = await clients.collect(KeyOffer, ctx.round, patience, key=KEY_BYTES)
    await _refuse_more(clients, ctx.round)
    signer = Signer(ctx.identity)
    certificates, certificate_lengths = lay_out([offer.certificate for offer in offers.values()])
    signatures, signature_lengths = lay_out([offer.signature for offer in offers.values()])
    keys = torch.stack([offer.key for offer in offers.values()])
    ring = KeyRing(
        ctx.round,
        keys,
        certificates,
        certificate_lengths,
        signatures,
        signature_lengths,
        to_tensor(signer.certificate),
    )
    await clients.tell(ring)
    return signer


async def _refuse_more(clients: Cohort, round: int) -> None:
    """A party has one key in a session: refuses a second offer that is here, and from now on any."""
    for party in await clients.collect(KeyOffer, round, Quorum(need=0)):
        raise ContractError(party, "KeyOffer", "", "one in a session", "a second")
    for link in clients.values():
        link.kinds = {name: kind for name, kind in link.kinds.items() if kind is not KeyOffer}
        link.keyed = True
