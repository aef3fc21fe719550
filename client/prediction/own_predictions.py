"""A party's own predictions, on its own disk, unseen by other members."""

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
class OwnPredictions:
    """A CSV file that grows with every prediction, readable by its owner alone.

    Args:
        ids: of the rows; None if rows have only numbers.
        classes: their names, or their number n for the names 0 to n - 1.
    """

    path: Path
    ids: Sequence[str] | None
    classes: int | Sequence[str]

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Appends rows, int64 (rows,), with probabilities (rows, classes). Raises EnvironmentFault."""
        names = tuple(map(str, range(self.classes))) if isinstance(self.classes, int) else self.classes
        best = values.argmax(1).tolist()
        lines = [
            [str(row) if self.ids is None else self.ids[row], names[label], *(f"{value:.6g}" for value in each)]
            for row, label, each in zip(rows.tolist(), best, values.tolist(), strict=True)
        ]
        try:
            with os.fdopen(
                open_own(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", newline="", encoding="utf-8"
            ) as file:
                writer = csv.writer(file)
                if not file.tell():
                    writer.writerow(["id", "class", *(f"p_{name}" for name in names)])
                writer.writerows(lines)
        except OSError as failed:
            raise EnvironmentFault(f"{self.path} cannot be written: {failed.strerror}", hint="make room") from failed
