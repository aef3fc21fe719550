"""What a party keeps of predictions on its own disk, unseen by other members."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run.own_files import open_own


@dataclass
class OwnLines:
    """A CSV file that grows with every prediction, a line a row, readable by its owner alone.

    Args:
        ids: of the rows; None if rows have only numbers.
        header: names of the fields after the id.
    """

    path: Path
    ids: Sequence[str] | None
    header: Sequence[str]

    def add(self, rows: Tensor, lines: Sequence[Sequence[str]]) -> None:
        """Appends a line for each of rows, int64 (rows,). Raises EnvironmentFault."""
        named = [str(row) if self.ids is None else self.ids[row] for row in rows.tolist()]
        try:
            with os.fdopen(
                open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", newline="", encoding="utf-8"
            ) as file:
                writer = csv.writer(file)
                if not file.tell():
                    writer.writerow(["id", *self.header])
                writer.writerows([name, *line] for name, line in zip(named, lines, strict=True))
        except OSError as failed:
            raise EnvironmentFault(f"{self.path} cannot be written: {failed.strerror}", hint="make room") from failed


@dataclass
class OwnPredictions:
    """The party's own predictions.

    Args:
        ids: as of `OwnLines`.
        classes: their names, or their number n for the names 0 to n - 1.
    """

    path: Path
    ids: Sequence[str] | None
    classes: int | Sequence[str]

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Appends rows, int64 (rows,), with probabilities (rows, classes). Raises EnvironmentFault."""
        names = tuple(map(str, range(self.classes))) if isinstance(self.classes, int) else self.classes
        lines = [
            [names[label], *(f"{value:.6g}" for value in each)]
            for label, each in zip(values.argmax(1).tolist(), values.tolist(), strict=True)
        ]
        OwnLines(self.path, self.ids, ["class", *(f"p_{name}" for name in names)]).add(rows, lines)
