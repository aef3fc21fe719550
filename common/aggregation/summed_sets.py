"""Record of the parties summed in every round, on disk: a repeated round must have the same set.

Two sums of one round over different sets reveal by their difference what a party sent. Within a session the blinder
refuses a second message of a round. After a rollback rounds are repeated, with new keys but the same parameters and
rows; from this record a party, and the server, know the earlier set.

A set is confirmed before it is summed: its parties prove to each other, through the server, that they were told the
same one.

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
from colonnade.common.errors import CheckpointError, InputError, PeerError
from colonnade.common.messaging.raw import to_bytes, to_tensor
from colonnade.common.run.json_text import whole
from colonnade.common.run.run_cache import RunCache

NAME = "members"

_BEFORE = ("members-a", "members-b")  # of versions before 0.3, which wrote them alternately
_AHEAD = 32  # rounds reserved together: up to this many may count as done without being


class MemberRecord:
    """Record of every round's set.

    Sets change rarely: the disk holds the first round of every set, and an upper bound of the last set's rounds, which
    is advanced before it is reached. The bound is a multiple of 32, so that no party counts a round as done that the
    server, which enters every round first, treats as new.

    Args:
        run: its number; a record of another run is refused.

    Raises CheckpointError if the stored record belongs to another run, or is damaged.
    """

    def __init__(self, run_cache: RunCache, run: str, roster: Sequence[str]) -> None:
        self._run_cache, self._run, self._roster = run_cache, run, tuple(roster)
        self._first = torch.empty(0, dtype=torch.int64)
        self._sets = torch.empty(0, len(self._roster), dtype=torch.uint8)
        self._count = self._until = 0
        for name in (NAME, *_BEFORE):
            self._read(name)
        self._done = self._until

    def bound(self, round: int) -> frozenset[str] | None:
        """The set that a round must have, since it may have been summed before; None if the round is new."""
        if round > self._done:
            return None
        place = max(0, int((self._first <= round).sum()) - 1)  # before this member's first: the first
        return frozenset(marked(self._roster, self._sets[place]))

    def enter(self, round: int, parties: Collection[str]) -> bool:
        """Records a round before any of its messages is sent; it is on the disk when this returns.

        Returns:
            False if the round is bound to another set: nothing may be sent for it.
        """
        bound = self.bound(round)
        if bound is not None:
            return bound == frozenset(parties)
        new = marks(self._roster, parties)[None]
        if not len(self._sets) or not torch.equal(self._sets[-1:], new):
            self._keep(round, torch.cat([self._first, torch.tensor([round])]), torch.cat([self._sets, new]))
        elif round > self._until:
            self._keep(round, self._first, self._sets)
        self._done = round
        return True

    def narrow(self, round: int, parties: Collection[str]) -> None:
        """Replaces the newest round's set by a smaller one, before the round is summed; on the disk when this returns.

        Only for a round that this object has entered as new, and for whose sum nothing was opened.
        """
        if round != self._done or not (self.bound(round) or frozenset()) > frozenset(parties):
            raise InputError(
                f"the set of round {round} cannot become {', '.join(sorted(parties))}",
                hint="only the newest round's set can become smaller",
            )
        new = marks(self._roster, parties)[None]
        self._keep(round, torch.cat([self._first, torch.tensor([round])]), torch.cat([self._sets, new]))

    def _read(self, name: str) -> None:
        found = self._run_cache.record(name)
        if found is None:
            return
        run, count, until, kept = self._parted(name, *found)
        if run != self._run:
            raise CheckpointError(
                f"the record of sums is of run {run}, not {self._run}",
                hint="choose another --out for another run; this one goes on from its own folder",
            )
        if count > self._count:
            self._count, self._until = count, until
            self._first, self._sets = kept["first"], kept["sets"]

    def _parted(self, name: str, number: str, kept: Mapping[str, Tensor]) -> tuple[str, int, int, Mapping[str, Tensor]]:
        run, *numbers = number.rsplit(" ", 2)
        first, sets = kept.get("first", torch.empty(0)), kept.get("sets", torch.empty(0))
        fits = first.dtype == torch.int64 and sets.dtype == torch.uint8 and sets.ndim == 2
        # A record of another run may be of another roster: it is refused by its run.
        fits = fits and len(sets) > 0 and first.shape == sets.shape[:1]
        fits = fits and (run != self._run or sets.shape[1] == len(self._roster))
        try:
            count, until = (whole(int(word)) for word in numbers)
        except ValueError:
            fits = False
        if not fits:
            raise CheckpointError(
                f"the record of sums, {name}, was altered",
                hint="choose another --out for another run; this one goes on from its own folder",
            )
        return run, count, until, kept

    def _keep(self, round: int, first: Tensor, sets: Tensor) -> None:
        """Writes to the disk first: on failure the state in memory does not change."""
        count, until = self._count + 1, -(-round // _AHEAD) * _AHEAD
        self._run_cache.keep_record(NAME, f"{self._run} {count} {until}", {"first": first, "sets": sets})
        self._first, self._sets, self._count, self._until = first, sets, count, until


def times_written(run_cache: RunCache) -> int:
    """Number of times the record was written, which only grows; 0 if there is none."""
    number = (run_cache.record(NAME) or ("", {}))[0].split()
    return int(number[-2]) if len(number) > 2 and number[-2].isdecimal() else 0


def marks(roster: Sequence[str], members: Collection[str]) -> Tensor:
    """A set of parties in wire form: uint8 (parties,) in the roster's order, 1 for those in it."""
    return torch.tensor([name in members for name in roster], dtype=torch.uint8)


def marked(roster: Sequence[str], marks: Tensor) -> tuple[str, ...]:
    """The reverse of `marks`, in the roster's order."""
    return tuple(name for name, is_in in zip(roster, marks.tolist(), strict=True) if is_in)


_BYTES = torch.uint8
_NONE = bytes(PROOF_BYTES)  # for parties outside the set, and for the party itself


class SetError(PeerError):
    """A party of a set has not confirmed it: it was told another one, or the server has altered its proof."""

    telling = None  # names of parties and a round


class SetProver:
    """Makes and checks one party's proofs of sets.

    Args:
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

        Raises SetError if a proof is missing or wrong; names the party.
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
