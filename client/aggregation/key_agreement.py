"""Key agreement with the other parties, party side; and a hash of what the server has told all of them in this run.

The masks of a sum are bound to the hash. A server may go back to a checkpoint and then send one party a different
answer. The difference between the two sums of a round would reveal how that answer changed this party's values.
Statements would find it later (docs/transcript.md); here the masks of a party that was told something else no longer
cancel, from the next sum on and in later sessions and predictions, because the hash is in the checkpoint.

It is used only where every party takes part in every round; elsewhere a slow party misses some of what others hear.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import torch

from colonnade.client.training.context import ClientContext
from colonnade.client.transcript.transcript import always_in_step, entry_of
from colonnade.common.aggregation.messages import KeyOffer, KeyProof, KeyProofs, KeyRing
from colonnade.common.config.compression import form_of
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.crypto.lengths import KEY_PROOF_BYTES
from colonnade.common.crypto.sealing import Agreement, Offer, Pairing, PairKeys, Seals
from colonnade.common.crypto.signatures import Verifier
from colonnade.common.errors import ContractError
from colonnade.common.messaging.forms import AS_IS
from colonnade.common.messaging.message import Message
from colonnade.common.messaging.raw import take_apart, to_bytes, to_tensor


@dataclass(frozen=True)
class Keys:
    """A party's keys after the agreement: `masks` has a key with every other party, for masked sums; `server` verifies
    the server's signatures, None without certificates.
    """

    seals: Seals
    masks: dict[str, bytes]
    server: Verifier | None


async def agree(ctx: ClientContext, server: Link) -> Keys:
    """Agrees on a pairwise key with every other party; both ends have seen the same keys of all parties.

    Raises:
        ForgedError: a party's key is not its own or is from another session, or that party saw other keys than we did;
            the message names it.
        TranscriptError: the server has described the session differently to another party, or that party has other
            rows.
        SealError: a party's key is unusable.
    """
    names = ctx.federation.names
    agreement = Agreement(ctx.name, ctx.session, ctx.identity)
    offer = agreement.offer()
    await server.send(
        KeyOffer(
            ctx.round,
            to_tensor(offer.key),
            to_tensor(offer.certificate),
            to_tensor(offer.signature),
            told=to_tensor(offer.told),
        )
    )
    received = await server.recv(KeyRing, ctx.round, parties=len(names))
    if received is None:
        raise ContractError(SERVER, "KeyRing", "", "everyone's keys before the first round", "a round")
    certificate = to_bytes(received.server)
    verifier = None if ctx.identity is None else Verifier(SERVER, certificate, ctx.federation.server)
    pairing = agreement.meet(_offers(names, received), ctx.federation.parties, certificate)
    pairs = await _confirm(ctx, server, pairing)
    ctx.keyed(pairs)
    return Keys(pairs.seals, pairs.masks, verifier)


async def _confirm(ctx: ClientContext, server: Link, pairing: Pairing) -> PairKeys:
    """Proves to every other party that we have the same ring of keys, and waits for their proofs."""
    names, ours = ctx.federation.names, pairing.proofs()
    rows = [to_tensor(ours.get(name, bytes(KEY_PROOF_BYTES))) for name in names]
    await server.send(KeyProof(ctx.round, torch.stack(rows)))
    received = await server.recv(KeyProofs, ctx.round, parties=len(names), key_proof=KEY_PROOF_BYTES)
    if received is None:
        raise ContractError(SERVER, "KeyProofs", "", "everyone's proofs before the first round", "a round")
    return pairing.confirm({name: to_bytes(row) for name, row in zip(names, received.proofs, strict=True)})


def _offers(names: tuple[str, ...], ring: KeyRing) -> dict[str, Offer]:
    try:
        certificates = take_apart(ring.certificates, ring.certificate_lengths)
        signatures = take_apart(ring.signatures, ring.signature_lengths)
        told = take_apart(ring.told, ring.told_lengths)
    except ValueError as wrong:
        lengths = "certificate_lengths, signature_lengths, told_lengths"
        raise ContractError(SERVER, "KeyRing", lengths, str(wrong), "others") from None
    rows = zip(ring.keys, certificates, signatures, told, strict=True)
    offers = [Offer(*map(to_bytes, row)) for row in rows]
    return dict(zip(names, offers, strict=True))


_NAME = "told"  # in the state: a list, empty until the party has received a message that is the same for all


class Told:
    """Hash of everything that the party side receives on its link, in order.

    Nothing is added unless it `trains`: predictions' requests are bound separately.
    """

    def __init__(self, ctx: ClientContext, server: Link, *, trains: bool = True) -> None:
        federation = ctx.federation
        self._kept = ctx.state.keep(_NAME, list[str])
        self._exact = form_of(federation.compress.down) == AS_IS
        if not always_in_step(federation, CONTRACTS[federation.protocol.name]):
            self._kept.clear()
        elif trains:
            server.on_taken = self._take

    def bind(self, about: bytes) -> bytes:
        """Hash of a sum's subject and of everything that we were told before it."""
        return sha256(about + self._kept[0].encode()).digest() if self._kept else about

    def _take(self, message: Message) -> None:
        if (entry := entry_of(message, message.round, exact=self._exact)) is not None:
            before = self._kept[0] if self._kept else ""
            self._kept[:] = [sha256(repr((before, entry.name, entry.round)).encode() + entry.digest).hexdigest()]
