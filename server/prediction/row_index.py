"""Rows that can be predicted: those that all members hold, by key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from colonnade.common.alignment.keeping import Keeping
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.psi_member import Seed
from colonnade.common.alignment.store import AlignmentRecord
from colonnade.common.config.federation import FederationConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.labels import LabelColumn
from colonnade.common.messaging.message import Kinds
from colonnade.common.observability.telemetry import Telemetry
from colonnade.common.run.run_cache import RunCache
from colonnade.server.alignment.finding import KeptPart
from colonnade.server.alignment.rows import ServerRows


@dataclass
class RowIndex:
    """Positions of rows by key.

    Args:
        labels: those of the training rows, in their common order.
        asked: distinct normalised keys that may be asked for; unused without alignment.
        seed: derives each alignment's secrets until it is settled.
        identity: the run's alignment, which gave the labels' rows; "" if it is not stored.

    Attributes:
        places: position of a row by its normalised key, or by its number where there are neither keys nor alignment.
            With alignment it is empty before the first one.
        here: the present parties.

    Raises DataError if two of the labels' keys are equal once normalised.
    """

    federation: FederationConfig
    labels: LabelColumn
    asked: tuple[str, ...] = ()
    seed: Seed = field(default_factory=Seed)
    keeping: Keeping = field(default_factory=Keeping)
    identity: str = ""
    places: Mapping[str, int] = field(default_factory=dict)
    here: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.federation.align == "none":
            self.places = {name: place for place, name in enumerate(self._names())}

    def positions(self, ids: Sequence[str]) -> Tensor:
        """The position of each id's row, int64 (ids,); -1 where some member does not know the id."""
        names = self.federation.keys.normals(ids)
        return torch.from_numpy(np.fromiter(map(self.places.get, names, repeat(-1)), np.int64, len(names)))

    def rows(self, names: Collection[str], kinds: Kinds, telemetry: Telemetry, use: Callable[[], None]) -> ServerRows:
        """An alignment with these parties: it sets new positions, calls `use`, and then allows `kinds`."""
        there = {name: pin for name, pin in self.federation.parties.items() if name in names}
        federation = self.federation.model_copy(update={"parties": there})
        keys = RowKeys.of(self.asked, self.federation.keys, SERVER)
        return ServerRows(
            federation,
            AlignmentRecord(RunCache(), keys, SERVER),
            telemetry,
            kinds,
            partial(self._settle, use),
            self.seed,
            self.keeping,
            self._part(),
            whole=False,
        )

    def history(self) -> Tensor:
        """The training row at each position, int64 (common,); -1 for new rows."""
        if self.federation.align == "none":
            return torch.arange(len(self.labels.values))
        history = torch.full((len(self.places),), -1)
        for name, place in self.places.items():
            history[place] = self._trained.get(name, -1)
        return history

    def _part(self) -> KeptPart | None:
        """The requested keys that the run's alignment has, in its order, so that the request's order stays hidden."""
        if not self.identity:
            return None
        trained = self._trained
        known = sorted((trained[key], row) for row, key in enumerate(self.asked) if key in trained)
        if not known or (self.federation.align == "sorted" and len(known) < len(self.asked)):
            return None
        wanted = torch.tensor([place for place, _ in known])
        rows = torch.tensor([row for _, row in known])
        return KeptPart(self.identity, rows, None if len(wanted) == len(trained) else wanted)

    @cached_property
    def _trained(self) -> Mapping[str, int]:
        return {name: row for row, name in enumerate(self._normal(self.labels.ids or ()))}

    def _settle(self, use: Callable[[], None], rows: Tensor) -> None:
        self.places = {self.asked[row]: place for place, row in enumerate(rows.tolist())}
        use()

    def _names(self) -> Iterable[str]:
        if self.labels.ids is None:
            return map(str, range(len(self.labels.values)))
        RowKeys.of(self.labels.ids, self.federation.keys, SERVER)  # refuses keys that compare equal
        return self._normal(self.labels.ids)

    def _normal(self, ids: Iterable[str]) -> Iterable[str]:
        return self.federation.keys.normals(tuple(ids))


def distinct(federation: FederationConfig, ids: Iterable[str]) -> tuple[str, ...]:
    """Normalised keys of the ids, without repetitions."""
    return tuple(dict.fromkeys(name for id in ids if (name := federation.keys.normal(id))))
