"""Over which parties a round was summed: kept on the disk, since a round that is done again must have the same.

Two sums of the same round over different sets tell by their difference what a party sent. Within a session
the blinder refuses a second message of a round. After a rollback rounds come again, with new keys and with
the same parameters and rows; this record is what tells a party, and the server, over whom they went before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from common.once import Once

_NAME = "members"
_AHEAD = 32  # rounds that are entered at once: so many may count as done that were not


class MemberRecord:
    """The set of every round so far.

    Sets change seldom: what lies on the disk is the first round of every set, and a round up to which the last
    one may have been in use, which is moved on before it is reached.

    Args:
        once: where it is kept.
        run: its number; what is found of another run is forgotten.
        roster: all parties, in the order that everyone has.
    """

    def __init__(self, once: Once, run: str, roster: Sequence[str]) -> None:
        self._once, self._run, self._roster = once, run, tuple(roster)
        self._first = torch.empty(0, dtype=torch.int64)
        self._sets = torch.empty(0, len(self._roster), dtype=torch.uint8)
        self._until = self._done = 0
        found_run, _, until = once.number(_NAME).partition(" ")
        if found_run and found_run == run:
            kept = once.get(_NAME)
            self._first, self._sets = kept["first"], kept["sets"]
            self._until = self._done = int(until)

    def bound(self, round: int) -> frozenset[str] | None:
        """The set that a round has to have, since it may have been summed over it before; None if it is new."""
        if round > self._done:
            return None
        place = int((self._first <= round).sum()) - 1
        return self._named(self._sets[place]) if place >= 0 else None

    def enter(self, round: int, parties: Collection[str]) -> bool:
        """Enters a round before anything of it leaves; it is on the disk when this returns.

        Returns:
            False if the round is bound to another set: nothing is to be sent for it.

        Raises:
            EnvironmentFault: the disk refuses it.
        """
        bound = self.bound(round)
        if bound is not None:
            return bound == frozenset(parties)
        new = torch.tensor([[name in parties for name in self._roster]], dtype=torch.uint8)
        changed = not len(self._sets) or not torch.equal(self._sets[-1:], new)
        if changed:
            self._first, self._sets = _append(self._first, torch.tensor([round])), _append(self._sets, new)
        if changed or round > self._until:
            self._until = round + _AHEAD
            self._once.keep(_NAME, f"{self._run} {self._until}", {"first": self._first, "sets": self._sets})
        self._done = round
        return True

    def _named(self, row: Tensor) -> frozenset[str]:
        return frozenset(name for name, is_in in zip(self._roster, row.tolist(), strict=True) if is_in)


def _append(whole: Tensor, one: Tensor) -> Tensor:
    return torch.cat([whole, one])
