"""A party's own predictions, on its own disk: nobody else sees them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from common.errors import EnvironmentFault


@dataclass
class OwnPredictions:
    """A CSV file that a start of the party begins with its first prediction, in the place of an earlier one.

    Args:
        path: of the file.
        ids: who the rows are about; None where they go by their numbers.
        classes: their names.
    """

    path: Path
    ids: Sequence[str] | None
    classes: Sequence[str]
    _begun: bool = field(default=False, init=False)

    def add(self, rows: Tensor, values: Tensor) -> None:
        """Enters some rows.

        Args:
            rows: their numbers, int64 (rows,).
            values: probabilities, (rows, classes).

        Raises:
            EnvironmentFault: the disk refuses them.
        """
        best = values.argmax(1).tolist()
        lines = [
            [str(row) if self.ids is None else self.ids[row], self.classes[label], *(f"{value:.6g}" for value in each)]
            for row, label, each in zip(rows.tolist(), best, values.tolist(), strict=True)
        ]
        try:
            with self.path.open("a" if self._begun else "w", newline="") as file:
                writer = csv.writer(file)
                if not self._begun:
                    writer.writerow(["id", "class", *(f"p_{name}" for name in self.classes)])
                writer.writerows(lines)
        except OSError as failed:
            raise EnvironmentFault(f"{self.path} cannot be written: {failed.strerror}", hint="make room") from failed
        self._begun = True
