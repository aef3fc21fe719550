"""Collection of the parties' responses: a quorum sets which responses a round waits for, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from colonnade.common.config.run_options import Quorum
from colonnade.common.conversation.mailbox import Mailbox
from colonnade.common.errors import ContractError, PartyLost
from colonnade.common.messaging.message import M, Message, check_exact

M_co = TypeVar("M_co", bound=Message, covariant=True)


@dataclass(frozen=True)
class Responses(Mapping[str, M_co]):
    """The responses of one kind and round by party, in the cohort's order.

    `missing` did not respond in time; `slowest` responded last, `lag` seconds after the first.
    """

    answers: Mapping[str, M_co]
    missing: tuple[str, ...]
    slowest: str = ""
    lag: float = 0.0

    def __getitem__(self, party: str) -> M_co:
        return self.answers[party]

    def __iter__(self) -> Iterator[str]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)


class ResponseCollector(Generic[M]):
    """Collects the responses of one round from `parties`, in the cohort's order; arguments as in `Cohort.collect`."""

    def __init__(
        self,
        mailbox: Mailbox,
        parties: tuple[str, ...],
        kind: type[M],
        round: int,
        *,
        quorum: Quorum,
        dims: Mapping[str, int],
        stale: Callable[[M], bool] | None,
    ) -> None:
        self._mailbox, self._parties, self._stale = mailbox, parties, stale
        self._kind, self._round, self._quorum, self._dims = kind, round, quorum, dims
        self._need = len(parties) if quorum.need is None else min(quorum.need, len(parties))
        self._answers: dict[str, M] = {}
        self._clock = asyncio.get_running_loop().time
        self._times: dict[str, float] = {}

    async def finish(self) -> Responses[M]:
        """Waits for the quorum. Raises ContractError and PartyLost, as `Cohort.collect`."""
        begin = self._clock()
        for party in self._parties:
            self._mailbox.strays.ask(party, self._kind.__name__, self._round)
        enough_since: float | None = None
        while True:
            self._pick_up()
            if enough_since is None and len(self._answers) >= self._needed():
                enough_since = self._clock()
            silent = [party for party in self._parties if party not in self._answers]
            hopeful = [party for party in silent if self._mailbox.fault([party]) is None]
            if enough_since is not None:
                left = enough_since + self._quorum.grace - self._clock()
                if not hopeful or left <= 0:
                    return self._responses(silent)
            else:
                end = self._mailbox.deadline(hopeful, begin, self._quorum.limit)
                self._give_up_if_hopeless(silent, hopeful, end - begin, end)
                left = end - self._clock()
            await self._mailbox.change(left)

    def _needed(self) -> int:
        """Number of required responses; excused parties are not waited for."""
        excused = sum(self._mailbox.excused(party) for party in self._parties if party not in self._answers)
        return min(self._need, len(self._parties) - excused)

    def _pick_up(self) -> None:
        for party in self._parties:
            if party in self._answers:
                continue
            found = self._mailbox.take(party, self._kind, self._round, self._stale)
            if found is None:
                continue
            try:
                check_exact(party, found, self._dims)
            except ContractError as broken:
                self._mailbox.fail(party, broken)
                continue
            self._answers[party] = found
            self._times[party] = self._clock()

    def _give_up_if_hopeless(self, silent: list[str], hopeful: list[str], limit: float, end: float) -> None:
        if len(self._answers) + len(hopeful) < self._needed():
            fault = self._mailbox.fault(silent)
            assert fault is not None  # a silent party that cannot respond has a fault
            raise fault
        if self._clock() >= end:
            if (fault := self._mailbox.fault(silent)) is not None and not isinstance(fault, PartyLost):
                raise fault  # this fault, not the others' silence, is why too few are left
            what = f"no {self._kind.__name__} for round {self._round} within {limit:g} s"
            others = f" (nor from {', '.join(hopeful[1:])})" if hopeful[1:] else ""
            if unread := self._mailbox.unread(hopeful[0]):
                others += f", while {unread} other messages of it wait unread"
            hint = f"{self._mailbox.remedy(hopeful[0])}, or lower federation.quorum.need to go on without it"
            raise PartyLost(hopeful[0], what + others, hint=hint)

    def _responses(self, missing: list[str]) -> Responses[M]:
        ordered = {party: self._answers[party] for party in self._parties if party in self._answers}
        if not self._times:
            return Responses(ordered, tuple(missing))
        slowest = max(self._times, key=self._times.__getitem__)
        lag = self._times[slowest] - min(self._times.values())
        return Responses(ordered, tuple(missing), slowest, lag)
