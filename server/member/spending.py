"""What the parties say that their releases have cost, compared with what came from them and with what is agreed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from colonnade.common.aggregation.messages import Masked
from colonnade.common.config.privacy import releases_of
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.parcels import Parcel
from colonnade.common.messaging import fields
from colonnade.common.messaging.message import Message, typed_fields

_MOST = 1e9  # releases: more than any run makes
_REPEATS = 1000  # times the planned releases: more than interruptions repeat


@dataclass
class _Received:
    """Releases by purpose, and the rows of all of them together."""

    trained: int = 0
    evaluated: int = 0
    rows_trained: int = 0
    rows_evaluated: int = 0


@dataclass
class Spending:
    """Releases that the parties state (`Spent`), at least as many as this process has received.

    Args:
        schedule: None until all members have the same rows.
    """

    schedule: Schedule | None = None
    _said: dict[str, float] = field(default_factory=dict)  # by party, the largest
    _received: dict[str, _Received] = field(default_factory=dict)

    @property
    def counts(self) -> Mapping[str, float]:
        """Releases of the parties that have stated any."""
        return {party: max(said, self.least(party)) for party, said in self._said.items()}

    def receive(self, party: str, parcel: Parcel) -> None:
        """Counts what has come from a party, which paid for it before it left."""
        found = [getattr(parcel, name) for name in _released(type(parcel))]
        lines = len(found[0]) - isinstance(parcel, Masked) if found else 0
        if lines <= 0:  # no message, or of a party that takes no part
            return
        got = self._received.setdefault(party, _Received())
        if hasattr(parcel, "part") or getattr(parcel, "stage", False):
            got.evaluated += len(found)
            got.rows_evaluated += lines
        else:
            got.trained += len(found)
            got.rows_trained += lines

    def state(self, party: str, releases: float) -> str:
        """Takes a party's number. Returns why it cannot be one, or ""."""
        if not 0 <= releases <= _MOST:
            return f"it stated {releases:g} releases"
        if wrong := self._wrong(party, releases):
            return wrong
        self._said[party] = max(self._said.get(party, 0), releases)
        return ""

    def confirm(self, schedule: Schedule) -> dict[str, str]:
        """All members have the same rows from now on. Returns what is wrong with what parties stated before."""
        self.schedule = schedule
        found = {party: self._wrong(party, said) for party, said in self._said.items()}
        return {party: wrong for party, wrong in found.items() if wrong}

    def _wrong(self, party: str, releases: float) -> str:
        plan = None if self.schedule is None else self.schedule.privacy
        if plan is None:
            return ""
        if releases < (least := self.least(party)):
            return f"it stated {releases:g} releases, and {least} have come from it"
        if plan.affordable is not None and releases > plan.affordable:
            return f"it stated {releases:g} releases, and the privacy budget allows {plan.affordable}"
        if releases > _REPEATS * plan.most:
            return f"it stated {releases:g} releases, and the plan is of {plan.most}"
        return ""

    def least(self, party: str) -> int:
        """Releases that what has come from a party cost at least; of seeded noise 0, as rollbacks lower its count."""
        schedule, got = self.schedule, self._received.get(party)
        plan = None if schedule is None else schedule.privacy
        if schedule is None or plan is None or got is None or plan.config.seeded:
            return 0
        evaluations = plan.config.evaluate == "released"
        if plan.config.mechanism == "discrete":
            return 1
        if plan.strict != "row":
            return got.trained + evaluations * got.evaluated
        parts = schedule.partition
        times = -(-got.rows_trained // len(parts.train))  # of some row, at least
        held = len(parts.validation) + len(parts.test)
        evaluated = math.ceil(got.rows_evaluated / held) if evaluations and held else 0
        return max(releases_of(times * schedule.training_cost), evaluated)


_FIELDS: dict[type, tuple[str, ...]] = {Masked: ("words",)}


def _released(kind: type) -> tuple[str, ...]:
    """Fields that a party's privacy stage made, one release each."""
    if kind not in _FIELDS:
        typed = typed_fields(kind) if issubclass(kind, Message) else {}
        _FIELDS[kind] = tuple(name for name, way in typed.items() if way is fields.Released)
    return _FIELDS[kind]
