"""Key agreement between the parties, server side: relays their offers."""

from __future__ import annotations

import torch

from colonnade.common.aggregation.messages import KeyOffer, KeyProof, KeyProofs, KeyRing
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.crypto.lengths import KEY_BYTES, KEY_PROOF_BYTES
from colonnade.common.crypto.signatures import Signer
from colonnade.common.errors import ContractError
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.raw import lay_out, to_tensor
from colonnade.server.training.context import ServerContext


async def introduce(ctx: ServerContext, clients: Cohort) -> Signer:
    """Sends every party the others' public keys, and relays their confirmations that all hold the same keys.

    The server cannot read what the parties seal with these keys. Returns the server's signer, valid while these parties
    stay connected.
    """
    patience = Quorum(limit=ctx.federation.timeouts.answer)
    offers = await clients.collect(KeyOffer, ctx.round, patience, key=KEY_BYTES)
    await _refuse_more(KeyOffer, clients, ctx.round)
    for link in clients.values():
        link.keyed = True
    signer = Signer(ctx.identity)
    certificates, certificate_lengths = lay_out([offer.certificate for offer in offers.values()])
    signatures, signature_lengths = lay_out([offer.signature for offer in offers.values()])
    told, told_lengths = lay_out([offer.told for offer in offers.values()])
    keys = torch.stack([offer.key for offer in offers.values()])
    ring = KeyRing(
        ctx.round,
        keys,
        certificates,
        certificate_lengths,
        signatures=signatures,
        signature_lengths=signature_lengths,
        told=told,
        told_lengths=told_lengths,
        server=to_tensor(signer.certificate),
    )
    await clients.broadcast(ring)
    proofs = await clients.collect(KeyProof, ctx.round, patience, parties=len(clients), key_proof=KEY_PROOF_BYTES)
    await _refuse_more(KeyProof, clients, ctx.round)
    received = torch.stack([proof.proofs for proof in proofs.values()], dim=1)  # (receivers, senders, proof)
    await clients.broadcast(
        {party: KeyProofs(ctx.round, theirs) for party, theirs in zip(clients, received, strict=True)}
    )
    return signer


async def _refuse_more(kind: type[Message], clients: Cohort, round: int) -> None:
    """Refuses a second message of this kind, now and later: a party has one key per session."""
    for party in await clients.collect(kind, round, Quorum(need=0)):
        raise ContractError(party, kind.__name__, "", "one in a session", "a second")
    for link in clients.values():
        link.kinds = {name: other for name, other in link.kinds.items() if other is not kind}
