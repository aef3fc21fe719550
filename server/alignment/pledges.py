"""Pledges (commitments) of an alignment, server side: relays them, and checks the lists that the server receives."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from colonnade.common.alignment.messages import DIGEST, Pledge, Pledges
from colonnade.common.conversation.responses import Responses
from colonnade.common.errors import ContractError
from colonnade.common.messaging.raw import lay_out, to_bytes, to_tensor


@dataclass
class RelayedPledges:
    """The pledges of all members in one alignment.

    Attributes:
        digests: by stage, the digests of all members' lists, the server's first.
        keys: pledged by the members with their own lists, the server's (empty) first.
    """

    digests: list[tuple[bytes, ...]] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)

    def collect(self, came: Responses[Pledge], round: int, own: bytes) -> Pledges:
        """Takes one pledge of every party, and returns what to show to all.

        `own` is the digest of the server's own list; empty while lists are raised, when all pledges are empty.
        """
        for party, pledge in came.items():
            if len(pledge.digest) != len(own):
                raise ContractError(party, "Pledge", "digest", f"{len(own)} bytes", str(len(pledge.digest)))
        if not own:
            return Pledges(round, torch.empty(0, DIGEST, dtype=torch.uint8), *lay_out([]), *lay_out([]), _NO_KEYS)
        parties = list(came.values())
        digests = torch.stack([to_tensor(own), *(pledge.digest for pledge in parties)])
        self.digests.append(tuple(to_bytes(one) for one in digests))
        certificates = lay_out([_NONE, *(pledge.certificate for pledge in parties)])
        signatures = lay_out([_NONE, *(pledge.signature for pledge in parties)])
        if len({len(pledge.keys) for pledge in parties}) > 1:
            raise ContractError(next(iter(came)), "Pledge", "keys", "as many bytes as others", "fewer or more")
        keys = torch.stack([pledge.keys for pledge in parties])
        self.keys = self.keys or [b"", *map(to_bytes, keys)]
        return Pledges(round, digests, *certificates, *signatures, keys)

    def check(self, party: str, seat: int, stage: int, digest: bytes) -> None:
        """Raises ContractError if the digest of a list received from a party differs from the party's pledge."""
        if digest != self.digests[stage][seat]:
            raise ContractError(party, "Points", "points", "the list that it has committed itself to", "another")


_NONE = to_tensor(b"")
_NO_KEYS = torch.empty(0, 0, dtype=torch.uint8)
