"""Key agreement between the parties, the server's side: it passes their offers on."""

from __future__ import annotations

import torch

from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Quorum
from colonnade.common.crypto.sealing import KEY_BYTES, PROOF_BYTES
from colonnade.common.crypto.signatures import Signer
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.raw import lay_out, to_tensor
from colonnade.common.secure_aggregation.key_agreement import KeyOffer, KeyProof, KeyProofs, KeyRing
from colonnade.server.training.context import ServerContext


async def introduce(ctx: ServerContext, clients: Cohort) -> Signer:
    """Tells every party the others' public keys, and passes on that they have them all alike.

    What the parties seal with their keys, the server cannot read.

    Returns:
        What the server signs with for as long as these parties stay connected.

    Raises:
        PartyLost: somebody offers no key, or does not confirm those of all.
        ContractError: what it offers is none, or it has offered another already.
    """
    patience = Quorum(limit=ctx.federation.timeouts.answer)
    offers = await clients.collect(KeyOffer, ctx.round, patience, key=KEY_BYTES)
    await _refuse_more(KeyOffer, clients, ctx.round)
    for link in clients.values():
        link.keyed = True
    signer = Signer(ctx.identity)
    certificates, certificate_lengths = lay_out([offer.certificate for offer in offers.values()])
    signatures, signature_lengths = lay_out([offer.signature for offer in offers.values()])
    keys = torch.stack([offer.key for offer in offers.values()])
    ring = KeyRing(
        ctx.round,
        keys,
        certificates,
        certificate_lengths,
        signatures=signatures,
        signature_lengths=signature_lengths,
        server=to_tensor(signer.certificate),
    )
    await clients.broadcast(ring)
    proofs = await clients.collect(KeyProof, ctx.round, patience, parties=len(clients), proof=PROOF_BYTES)
    await _refuse_more(KeyProof, clients, ctx.round)
    received = torch.stack([proof.proofs for proof in proofs.values()], dim=1)  # (receivers, senders, proof)
    await clients.broadcast(
        {party: KeyProofs(ctx.round, theirs) for party, theirs in zip(clients, received, strict=True)}
    )
    return signer


async def _refuse_more(kind: type[Message], clients: Cohort, round: int) -> None:
    """A party has one key in a session: refuses a second message of the kind that is here, and from now on any."""
    for party in await clients.collect(kind, round, Quorum(need=0)):
        raise ContractError(party, kind.__name__, "", "one in a session", "a second")
    for link in clients.values():
        link.kinds = {name: other for name, other in link.kinds.items() if other is not kind}
