"""Tables in which several rows have one key: the owner's policy selects the row that represents it.

Only the member's own rows are chosen, before alignment: others see one row per key, and no group sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from colonnade.common.config.data.columns import Type
from colonnade.common.config.data.tables import Latest, RepeatedColumns
from colonnade.common.data.columns import cells
from colonnade.common.data.columns.cells import Notation
from colonnade.common.data.columns.features import Doubt, Features
from colonnade.common.data.keys import KeyColumn
from colonnade.common.data.table import Table, located
from colonnade.common.errors import DataError

_KEPT = {"first": "the first of each is used", "last": "the last of each is used", "mean": "each is used as its mean"}


@dataclass(frozen=True)
class OneRowAKey:
    """The policy for one table.

    Args:
        type: declared type of the column that `latest` names; None infers numbers or dates.
    """

    policy: RepeatedColumns
    table: Table
    key: str
    notation: Notation
    type: Type | None = None

    def features(self, found: Features) -> Features:
        """One row a key, in the order of the table. Raises DataError as `rows`, or if a mean is undefined."""
        assert isinstance(found.ids, KeyColumn)  # the configuration was checked
        groups = _groups(found.ids)
        index = self._index(groups, np.arange(len(groups)))
        kept = found.rows(torch.from_numpy(index))
        if self.policy == "mean":
            kept = replace(kept, values=self._means(found, groups))
        return replace(kept, doubts=(*found.doubts, *self._told(len(groups), len(index))))

    def rows(self, ids: KeyColumn, known: Tensor) -> tuple[Tensor, tuple[Doubt, ...]]:
        """One of the known rows, bool (n,), per key: row numbers, int64, ascending, and warnings about the others.

        Raises DataError if the deciding column lacks a value, has none that can be compared, or has ties.
        """
        rows = known.nonzero().squeeze(1).numpy()
        index = self._index(_groups(ids)[rows], rows)
        return torch.from_numpy(rows[index]), tuple(self._told(len(rows), len(index)))

    def _index(self, groups: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Indices of the kept rows, ascending; `rows` are their numbers in the table."""
        if isinstance(self.policy, Latest):
            times = self._times(self.policy.latest)[rows]
            order = np.lexsort((times, groups))
            ends = np.append(groups[order][1:] != groups[order][:-1], True)
            self._refuse_ties(rows[order], times[order], groups[order], ends)
        else:
            order = np.argsort(groups, kind="stable")
            ends = np.append(groups[order][1:] != groups[order][:-1], True)
            if self.policy != "last":
                ends = np.roll(ends, 1)
        return np.sort(order[ends])

    def _refuse_ties(self, rows: np.ndarray, times: np.ndarray, groups: np.ndarray, ends: np.ndarray) -> None:
        assert isinstance(self.policy, Latest)
        tied = ends[1:] & (groups[1:] == groups[:-1]) & (times[1:] == times[:-1])
        if tied.any():
            at = int(tied.argmax())
            one, other = (self.table.place(row) for row in sorted(rows[at : at + 2].tolist()))
            raise DataError(
                f"{one} and {other} have one key and one {self.policy.latest!r}, in {int(tied.sum())} keys: neither "
                "is the latest",
                hint="leave one of them out, or name another column",
            )

    def _times(self, column: str) -> np.ndarray:
        """Numbers or days since 1970 of all rows, by which `latest` decides."""
        found, kind, rows = list[np.ndarray](), self.type, 0
        for batch in self.table.batches([column]):
            values = cells.decoded(batch.column(0))
            with located(self.table, column, rows):
                kind = kind or _kind(values)
                numbers = cells.Reading(kind, self.notation).numbers(values)
                if (absent := np.isnan(numbers)).any():
                    hint = "fill it in: it decides which row of a repeated key is used"
                    raise cells.Misfit(int(absent.argmax()), "the value is missing", hint)
            found.append(numbers)
            rows += batch.num_rows
        return np.concatenate(found)

    def _means(self, found: Features, groups: np.ndarray) -> Tensor:
        """Means of numbers, without missing ones; words that are the same in all rows of a key."""
        order = np.argsort(groups, kind="stable")
        starts = np.flatnonzero(np.append(True, groups[order][1:] != groups[order][:-1]))
        means = np.empty((len(starts), found.values.shape[1]))
        for place, field in enumerate(found.fields):
            column = found.values[:, place].numpy()[order]
            if field.words is None:
                there = ~np.isnan(column)
                counts = np.add.reduceat(there.astype(np.float64), starts)
                sums = np.add.reduceat(np.where(there, column, 0.0), starts)
                means[:, place] = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
                continue
            means[:, place] = np.fmax.reduceat(column, starts)
            if (several := np.fmin.reduceat(column, starts) < means[:, place]).any():
                row = int(order[starts[int(several.argmax())]])
                raise DataError(
                    f"{self.table.place(row)}, column {field.name!r}: words differ within {int(several.sum())} of "
                    f"{len(several)} keys, and have no mean",
                    hint="take `repeated: first`, `last` or `{latest: COLUMN}`, or leave the column out",
                )
        return torch.from_numpy(means[np.argsort(order[starts])])

    def _told(self, rows: int, kept: int) -> Sequence[Doubt]:
        if rows == kept:
            return ()
        latest = isinstance(self.policy, Latest) and f"the one with the latest {self.policy.latest!r} is used"
        said = latest or _KEPT[str(self.policy)]
        out = f"{rows - kept} row{'s' if rows - kept > 1 else ''} left out"
        what = f"is the key, and {rows} rows have {kept} keys: {said}, {out}"
        return (Doubt(self.key, what, "`repeated: refuse` would stop here"),)


def _groups(keys: KeyColumn) -> np.ndarray:
    """A number for every row, the same for the same key."""
    groups: np.ndarray = keys.text.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return groups


def _kind(values: pa.Array) -> Type:
    """Numbers if the first cell is one, else dates."""
    if not cells.is_text(values):
        return "number" if cells.is_number(values) else "date"
    first = next((cell for cell in cells.written(values.slice(0, 1)).to_pylist()), None)
    return "date" if first is not None and "-" in first[1:] else "number"
