"""Confirmation of a round's set, server side: relays the parties' proofs."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from colonnade.common.aggregation.confirmed_sets import relayed
from colonnade.common.aggregation.messages import SetProof, SetProofs
from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.messaging.message import M, check_exact


async def relay_proofs(
    clients: Cohort, round: int, quorum: Quorum, members: Collection[str], there: Collection[str] | None = None
) -> Responses[SetProof]:
    """Relays the proofs of a set once everyone in it has sent theirs, and none before; returns the proofs that came.

    Args:
        there: those of it that can still respond; None for all.
    """
    among = members if there is None else there
    sent = await clients.collect(SetProof, round, quorum, among=among, proof=PROOF_BYTES)
    sent = without_refusals(sent, lambda proof: len(proof.proofs))
    for party, proof in sent.items():
        check_exact(party, proof, {"parties": len(clients)})
    if len(sent) == len(members):
        proofs = relayed(tuple(clients), {party: proof.proofs for party, proof in sent.items()}, sent)
        await clients.broadcast({party: SetProofs(round, 0, theirs) for party, theirs in proofs.items()})
    return sent


def without_refusals(responses: Responses[M], size: Callable[[M], int]) -> Responses[M]:
    """The responses without those of size 0, which refuse the round."""
    given = {party: response for party, response in responses.items() if size(response)}
    refused = tuple(party for party in responses if party not in given)
    return replace(responses, answers=given, missing=(*responses.missing, *refused))
