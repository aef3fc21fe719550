"""Key agreement with the other parties, a party's side."""

from __future__ import annotations

from dataclasses import dataclass

from client.context import ClientContext
from common.agreement import KeyOffer, KeyRing
from common.conversation import SERVER, Link
from common.crypto.sealing import Agreement, Offer, Seals
from common.crypto.signatures import Verifier
from common.errors import ContractError
from common.raw import take_apart, to_bytes, to_tensor


@dataclass(frozen=True)
class Keys:
    """What a party has after the agreement.

    Args:
        seals: between it and every other party.
        masks: a key with every other party, for sums that are taken blind.
        server: checks what the server signs; None where nobody has certificates.
    """

    seals: Seals
    masks: dict[str, bytes]
    server: Verifier | None


async def agree(ctx: ClientContext, server: Link) -> Keys:
    """Agrees on keys with every other party, which only these two have.

    Raises:
        ForgedError: somebody's key is not its own; the message names the party.
        SealError: somebody's key is unusable.
        ContractError: the server has passed on something else.
    """
    names = ctx.federation.names
    agreement = Agreement(ctx.name, ctx.session, ctx.identity)
    offer = agreement.offer()
    await server.send(
        KeyOffer(ctx.round, to_tensor(offer.key), to_tensor(offer.certificate), to_tensor(offer.signature))
    )
    ring = await server.recv(KeyRing, ctx.round, parties=len(names))
    if ring is None:
        raise ContractError(SERVER, "KeyRing", "", "everyone's keys before the first round", "a round")
    offers, pins = _offers(names, ring), ctx.federation.parties
    seals, masks = agreement.finish(offers, pins), agreement.mask_keys(offers, pins)
    if ctx.identity is None:
        return Keys(seals, masks, None)
    return Keys(seals, masks, Verifier(SERVER, to_bytes(ring.server), ctx.federation.server))


def _offers(names: tuple[str, ...], ring: KeyRing) -> dict[str, Offer]:
    try:
        certificates = take_apart(ring.certificates, ring.certificate_lengths)
        signatures = take_apart(ring.signatures, ring.signature_lengths)
    except ValueError as wrong:
        raise ContractError(SERVER, "KeyRing", "certificate_lengths, signature_lengths", str(wrong), "others") from None
    rows = zip(ring.keys, certificates, signatures, strict=True)
    offers = [Offer(to_bytes(key), to_bytes(certificate), to_bytes(signed)) for key, certificate, signed in rows]
    return dict(zip(names, offers, strict=True))
