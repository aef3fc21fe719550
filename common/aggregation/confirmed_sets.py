"""Confirmation of a round's set: its parties prove to each other, through the server, that they were told the same one.

    1   party k    for every other party in the set a proof that it was told this set -> server
    2   server     the proofs that are for it                                         -> every party in the set

A proof is an HMAC-SHA256 under a key of the pair, over its direction, the round, its stage, the set and the hash of
what is summed (common/aggregation/subject.py), so that the server, which relays it, can make none. A party goes
on when every party in the set has proved it: no two of these parties then go on with different sets or rows. Where a
round has one possible set, as with `federation.quorum: wait`, no set is confirmed.

Two sets, each of more than half of the parties, have a party in common, and a party confirms one set a round. Two
disjoint sets could both be confirmed, so `check_blinded` refuses smaller quorums.

In FedVS parties outside the set compute its sum too, and some may be late. There q of all parties confirm the set, and
prove it to all others. With m parties that lie, two sets are confirmed only if 2 q <= n + m.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from colonnade.common.crypto.lengths import PROOF_BYTES
from colonnade.common.errors import PeerError
from colonnade.common.messaging.raw import to_bytes, to_tensor

_BYTES = torch.uint8
_NONE = bytes(PROOF_BYTES)  # for parties outside the set, and for the party itself


class SetError(PeerError):
    """A party of a set has not confirmed it: it was told another one, or the server has altered its proof."""

    telling = None  # names of parties and a round


class SetProver:
    """Makes and checks one party's proofs of sets.

    Args:
        roster: all parties, in the agreed order.
        keys: a key with every other party, the same at both ends and unknown to the server (`PairKeys.masks`).
    """

    def __init__(self, name: str, roster: Sequence[str], keys: Mapping[str, bytes]) -> None:
        self._name, self._roster, self._keys = name, tuple(roster), keys

    def proofs(
        self,
        round: int,
        members: Collection[str],
        laid: Collection[str] = (),
        *,
        about: bytes,
        stage: int = 0,
        to: Collection[str] | None = None,
    ) -> Tensor:
        """Proofs that we were told this set, uint8 (parties, 32).

        Args:
            laid: over whom the words are masked, where that is settled before the set.
            about: hash of what the sum is over.
            to: receivers; the other members if left out.
        """
        told, own = self._told(round, stage, about, members, laid), self._roster.index(self._name)
        receivers = members if to is None else to
        others = [
            _NONE if party == self._name or party not in receivers else self._proof(party, f"{own} {place} {told}")
            for place, party in enumerate(self._roster)
        ]
        return to_tensor(b"".join(others)).view(len(self._roster), PROOF_BYTES)

    def check(
        self,
        round: int,
        members: Collection[str],
        proofs: Tensor,
        laid: Collection[str] = (),
        *,
        about: bytes,
        stage: int = 0,
        enough: int | None = None,
    ) -> None:
        """Returns if every other member has proved that it was told this set; with `enough`, if that many have.

        Args:
            proofs: as the server has relayed them, uint8 (parties, 32).
            enough: parties of the roster that must confirm, including ourselves; the others send no proof.

        Raises:
            SetError: a proof is missing or wrong; names the party.
        """
        told, own = self._told(round, stage, about, members, laid), self._roster.index(self._name)
        names, confirmed = ", ".join(name for name in self._roster if name in members), 1
        for place, (party, row) in enumerate(zip(self._roster, proofs, strict=True)):
            due = party in members if enough is None else bool(row.any())
            if party == self._name or not due:
                continue
            if not hmac.compare_digest(to_bytes(row), self._proof(party, f"{place} {own} {told}")):
                raise SetError(
                    f"{party} does not confirm that round {round} sums over {names}: the server has told it another "
                    "set or other rows, or has altered what it said",
                    hint="compare the events of both parties; if both ran as agreed, the server is not honest",
                )
            confirmed += 1
        if enough is not None and confirmed < enough:
            raise SetError(
                f"the server shows that {confirmed} parties confirm that round {round} sums over {names}, and {enough} "
                "have to",
                hint="it may have told others another set: compare the events of all parties",
            )

    def _told(self, round: int, stage: int, about: bytes, *sets: Collection[str]) -> str:
        """The text that is proved; sets are places in the roster."""
        places = [[place for place, party in enumerate(self._roster) if party in one] for one in sets]
        return f"{round} {stage} {about.hex()} {places}"

    def _proof(self, other: str, what: str) -> bytes:
        return hmac.digest(self._keys[other], f"set {what}".encode(), "sha256")


def relayed(roster: Sequence[str], proofs: Mapping[str, Tensor], to: Collection[str]) -> dict[str, Tensor]:
    """The proofs for each receiver in `to`, uint8 (parties, 32), from those of each party that has sent some."""
    none = torch.zeros(len(roster), PROOF_BYTES, dtype=_BYTES)
    sent = torch.stack([proofs.get(party, none) for party in roster])  # (senders, receivers, proof)
    return {party: sent[:, place].contiguous() for place, party in enumerate(roster) if party in to}
