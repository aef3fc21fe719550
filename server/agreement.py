"""Key agreement between the parties, the server's side: it passes their offers on."""

from __future__ import annotations

import torch

from common.agreement import KeyOffer, KeyRing
from common.conversation import Cohort, Quorum
from common.crypto.sealing import KEY_BYTES
from common.crypto.signatures import Signer
from common.raw import lay_out, to_tensor
from server.context import ServerContext


async def introduce(ctx: ServerContext, clients: Cohort) -> Signer:
    """Tells every party the others' public keys. What they seal with them, the server cannot read.

    Returns:
        What the server signs with in this session.

    Raises:
        PartyLost: somebody offers no key.
        ContractError: what it offers is none.
    """
    patience = Quorum(limit=ctx.federation.timeouts.answer)
    offers = await clients.collect(KeyOffer, ctx.round, patience, key=KEY_BYTES)
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
