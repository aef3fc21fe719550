"""Lists with proofs, server side: relays sealed lists, and verifies those that the server receives."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.common.alignment.checks.pledge import PledgeTerms
from colonnade.common.alignment.checks.proving import KEYS, ProofTerms
from colonnade.common.alignment.messages import Proved
from colonnade.common.alignment.psi_member import PsiMember
from colonnade.common.alignment.psi_ring import PsiRing
from colonnade.common.conversation.conversation import Cohort
from colonnade.common.conversation.responses import Responses
from colonnade.common.crypto.proven import POINT
from colonnade.common.errors import ContractError
from colonnade.common.messaging.outgoing import MaskedTensor, nothing
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.server.alignment.pledges import RelayedPledges


@dataclass
class ServerProving:
    """The server's side of the lists in one alignment with proofs; `hand` makes and takes the server's lists."""

    hand: PsiMember
    terms: PledgeTerms
    ring: PsiRing
    pledges: RelayedPledges
    _proofs: ProofTerms | None = field(default=None, init=False)

    async def relay(self, cohort: Cohort, own: Tensor, came: Responses[Proved], round: int) -> None:
        """Sends every party's box to the next party, and the server's own list to the first."""
        names = self.terms.federation.names
        boxes = [MaskedTensor(own.flatten(), "a list of the server"), *(message.box for message in came.values())]
        await cohort.broadcast({name: Proved(round, boxes[index]) for index, name in enumerate(names)})

    async def end(self, cohort: Cohort, round: int) -> None:
        await cohort.broadcast(Proved(round, nothing(0, dtype=torch.uint8)))

    def read(self, seat: int, stage: int, block: int, box: Tensor) -> MaskedTensor:
        """Verifies a block that a party sent to the server; returns its elements, uint8 (keys, 64).

        Raises ContractError if the party did not prove that it raised the list that it received to its exponent.
        """
        name = self.terms.federation.names[seat - 1]
        if self._proofs is None:
            for party, pledged in zip(self.terms.federation.names, self.pledges.keys[1:], strict=True):
                if len(pledged) != KEYS:
                    raise ContractError(party, "Pledge", "keys", f"{KEYS} bytes", str(len(pledged)))
            pledges = self.pledges
            self._proofs = ProofTerms(self.terms, self.ring, pledges.digests, pledges.keys, self.hand.folder)
        content = self._proofs.read(name, seat, stage, block, to_bytes(box))
        return MaskedTensor(to_tensor(content).view(-1, POINT), "a list of a party")
