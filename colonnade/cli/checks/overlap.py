"""Overlap of the members' keys, where all tables are on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.refusal import refuse_nothing, refuse_other_sizes
from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.rows import Partition
from colonnade.common.errors import DataError
from colonnade.reports.console.screen import out


def in_parts(rows: Partition) -> str:
    """Number of rows in each part."""
    return f"{len(rows.train)} train, {len(rows.validation)} validate, {len(rows.test)} test"


class Overlap:
    """Keys of the members whose tables have been read.

    Args:
        federation: the agreed section.

    Attributes:
        common: keys that all members have, as they are compared; none before `show`, or without an alignment.
    """

    def __init__(self, federation: FederationConfig) -> None:
        self._federation = federation
        self.common: frozenset[str] = frozenset()
        self._keys: dict[str, list[str]] = {}  # as they are compared

    def add(self, member: str, ids: Sequence[str] | None) -> None:
        """Adds a member's keys. Raises DataError if rows are matched by keys, and these cannot be used."""
        if self._federation.align == "none" and ids is None:
            return
        compared = [*map(self._federation.keys.normal, ids or ())]
        different = set(compared)
        if not different or "" in different or len(different) < len(compared):
            RowKeys.of(ids, self._federation.keys, member)  # raises
        self._keys[member] = compared

    def show(self) -> int | None:
        """Prints the number of rows common to all, if all have been read, and returns it; None where it is not known.

        Raises:
            DataError: there are none, or with `sorted` or without alignment the keys are not the same.
            InputError: there are fewer than a batch has.
        """
        align = self._federation.align
        if align == "none":
            self._refuse_others()
        elif set(self._keys) == {SERVER, *self._federation.names}:
            everyones = self._keys.values()
            if align == "sorted":
                refuse_other_sizes(align, tuple(self._keys), [len(keys) for keys in everyones])
            self.common = frozenset.intersection(*map(frozenset, everyones))
            common = len(self.common)
            refuse_nothing(align, common if align == "psi" or common == len(self._keys[SERVER]) else 0)
            parts = in_parts(Schedule(self._federation, common, 0).partition)
            out.say(f"{common} rows are common to all: {parts}")
            return common
        else:
            out.say("the number of rows common to all is known after alignment")
        return None

    @property
    def most(self) -> str:
        """Prefix of a member's row count: with alignment, only rows that all members hold are used."""
        return "" if self._federation.align == "none" else "up to "

    def _refuse_others(self) -> None:
        """Refuses tables without alignment whose keys differ, where they have any."""
        for member, keys in self._keys.items():
            if SERVER in self._keys and keys != self._keys[SERVER]:
                raise DataError(
                    f"{member}: the keys of its table are others than those of server.labels, or in another order",
                    hint="federation.align: psi finds the rows that all have; or bring the tables into one order",
                )
