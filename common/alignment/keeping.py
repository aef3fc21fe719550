"""A member's kept alignments, as configured. A disk that refuses is a warning, not a failure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from torch import Tensor

from colonnade.common.alignment.exponent import Exponent, MakeExponent, RaisedElements
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.limits import DailyLimits
from colonnade.common.alignment.place import place_of
from colonnade.common.alignment.store import (
    AlignmentRecord,
    AlignmentStore,
    KeptAlignment,
    identity_of,
    roster_digest,
)
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.config.federation import FederationConfig
from colonnade.common.crypto.raising import Raising
from colonnade.common.errors import EnvironmentFault

_T = TypeVar("_T")


@dataclass(frozen=True)
class Place:
    """Where a member keeps alignments.

    Args:
        base: the folder that paths in the member's file are relative to.
        out: the member's folder of the run.
    """

    config: AlignmentsConfig
    base: Path
    out: Path
    member: str


class Keeping:
    """The kept alignments of one member in one start, and the processes that raise its keys.

    Args:
        store: None keeps nothing, and draws a secret for every alignment.
        policy: digest of the member's own rules about alignments.
        warn: called with a reason when the disk refuses.
        roster: names of all parties.
        daily: limits on what others can test in a day; None counts nothing.
    """

    def __init__(
        self,
        store: AlignmentStore | None = None,
        policy: bytes = b"",
        processors: int = 1,
        warn: Callable[[str], None] = lambda _reason: None,
        *,
        roster: Collection[str] = (),
        daily: DailyLimits | None = None,
    ) -> None:
        self._store, self._policy, self._warn, self._roster = store, policy, warn, frozenset(roster)
        self._warned, self.daily = False, daily or DailyLimits()
        self._raising, self._raised = Raising(processors), list[RaisedElements]()

    @classmethod
    def of(
        cls,
        federation: FederationConfig,
        place: Place,
        *,
        pinned: bool,
        policy: bytes = b"",
        reuse: bool = True,
        processors: int = 1,
        warn: Callable[[str], None] = lambda _reason: None,
    ) -> Keeping:
        """Builds it as configured.

        Args:
            federation: the agreed section, with the whole roster.
            pinned: True if the roster's fingerprints identify members beyond this start.
            reuse: False keeps and uses no kept alignment; what others test is still counted.
        """
        store, folder = None, place_of(place.config, place.base, place.out, place.member)
        if reuse and place.config.days and not federation.keys.seeded:
            store = AlignmentStore(folder, roster_digest(federation, pinned=pinned), place.config.days)
        daily = DailyLimits.of(federation, place.config, folder, place.member, pinned=pinned)
        return cls(store, policy, processors, warn, roster=federation.names, daily=daily)

    @property
    def terms(self) -> bytes:
        """32 bytes that change with the roster and the member's own rules; empty if nothing is kept."""
        return b"" if self._store is None else hashlib.sha256(self._store.roster + self._policy).digest()

    def held(self, keys: RowKeys) -> KeptAlignment | None:
        store = self._store
        return None if store is None else self._tried(lambda: store.held(keys, self._policy))

    def keep(
        self,
        record: AlignmentRecord,
        number: str,
        rows: Tensor,
        nonces: Sequence[bytes],
        commitments: Mapping[str, str],
        *,
        whole: bool,
    ) -> None:
        """Stores a new alignment in the run's record, and of the whole roster for other runs, if the disk allows."""
        store, identity = self._store, ""
        if store is not None and whole:
            identity = identity_of(store.roster, nonces, len(rows), commitments)
            found = KeptAlignment(identity, rows, commitments)
            self._tried(lambda: store.keep(record.keys, self._policy, found))
        record.keep(number, rows, identity, self.terms)

    def exponent(self, drawn: bytes) -> Exponent:
        """The member's exponent for this roster; a one-time exponent of `drawn` (32 bytes) if nothing is kept."""
        store = self._store
        found = None if store is None else self._tried(lambda: _with_raised(store))
        if found is None:
            return self.fresh(drawn)
        scalar, raised = found
        self._raised.append(raised)
        return Exponent(scalar, self._raising, raised)

    def among(self, parties: Collection[str]) -> MakeExponent:
        """Source of the exponent for an alignment of some parties: the roster's exponent serves only the whole roster.

        Otherwise lists raised by only some parties could be compared with lists of other alignments.
        """
        return self.exponent if frozenset(parties) == self._roster else self.fresh

    def fresh(self, drawn: bytes) -> Exponent:
        return Exponent(drawn, self._raising)

    def close(self, *, complete: bool = False) -> None:
        """Stores what was raised, and ends the processes; a complete alignment drops elements that it did not need."""
        self._raising.close()
        while self._raised:
            self._tried(partial(self._raised.pop().save, drop=complete))

    def _tried(self, call: Callable[[], _T]) -> _T | None:
        try:
            return call()
        except (EnvironmentFault, OSError) as failed:
            if not self._warned:  # once a start
                self._warn(f"alignments are not kept: {failed}")
            self._warned = True
            return None


def _with_raised(store: AlignmentStore) -> tuple[bytes, RaisedElements]:
    exponent = store.exponent()
    return exponent, store.raised(exponent)
