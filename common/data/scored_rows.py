"""A party's notes on each batch of rows that it has scored: missing values, new words and shifted columns.

They stay with the party: a line of `batches.jsonl` in its folder, and one in its log. Rows count each time they are
scored.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.common.data.columns.distribution import (
    LARGE,
    MODERATE,
    ColumnBins,
    DistributionFile,
    binned,
    level,
)
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.run.files import open_own
from colonnade.common.run.json_text import is_torn
from colonnade.common.run.run_folder import MemberFolder

PERIOD = 3600.0  # seconds of a service that one batch covers; a batch also ends with the session of a prediction

_NEW = "that training had not"
_NAMED = 5  # columns in a line
_DIGITS = 4
_TOGETHER = 64  # requests whose rows are counted at once: few rows take as long as many


@dataclass
class ScoredRows:
    """The rows that a member scores, in batches.

    Args:
        folder: the member's folder in the run.
        report: called with the columns of each batch as `batches.jsonl` has them, and the same in words.
        warn: called with a reason if a batch cannot be noted.
    """

    folder: Path
    report: Callable[[dict[str, Any], str], None]
    warn: Callable[[str], None]
    clock: Callable[[], float] = time.time
    _bins: tuple[ColumnBins, ...] = field(default=(), init=False)
    _unknown: str = field(default="", init=False)
    _places: np.ndarray | None = field(default=None, init=False)
    _counts: list[np.ndarray] = field(default_factory=list, init=False)
    _uncounted: list[Tensor] = field(default_factory=list, init=False)
    _rows: int = field(default=0, init=False)
    _began: float = field(default=0.0, init=False)

    def take(self, features: Features) -> None:
        """Takes the encodable rows of a session; ends the batch of the session before."""
        self.end()
        codes = EncoderFile(self.folder, begun=True).read().codes
        self._bins, self._unknown = DistributionFile(self.folder).read(codes)
        self._places = binned(self._bins, codes, features).numpy() if codes else None

    def add(self, rows: Tensor) -> None:
        """Counts rows that were scored, int64 (n,)."""
        if self._places is None:
            return
        now = self.clock()
        if self._rows and now - self._began >= PERIOD:
            self.end()
        if not self._rows:
            self._began, self._counts = now, [np.zeros(one.bins + 2, np.int64) for one in self._bins]
        self._uncounted.append(rows.cpu())
        self._rows += len(rows)
        if len(self._uncounted) == _TOGETHER:
            self._count()

    def _count(self) -> None:
        assert self._places is not None
        places = self._places.take(torch.cat(self._uncounted).numpy(), axis=0)
        for column, bins in enumerate(self._bins):
            self._counts[column] += bins.count(places[:, column])
        self._uncounted = []

    def end(self) -> None:
        """Notes the batch, if rows were scored. A failing disk gives a warning."""
        if not self._rows:
            return
        self._count()
        columns = [_noted(bins, counts) for bins, counts in zip(self._bins, self._counts, strict=True)]
        unknown = {"psi_unknown": self._unknown} if self._unknown else {}
        times = {"time": round(self.clock(), 3), "begin": round(self._began, 3)}
        record = {**times, "rows": self._rows, **unknown, "columns": columns}
        rows, self._rows = self._rows, 0
        path = MemberFolder(self.folder).batches
        try:
            torn = is_torn(path)
            with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "a", encoding="utf-8") as file:
                file.write("\n" * torn + json.dumps(record) + "\n")
        except OSError as failed:
            self.warn(f"the batch is not noted: {failed}")
        self.report(record, batch_words(rows, columns, self._unknown))


def _noted(bins: ColumnBins, counts: np.ndarray) -> dict[str, Any]:
    index = bins.index(counts)
    new = "outside" if bins.words is None else "unseen"
    found: dict[str, Any] = {"name": bins.name, "missing": int(counts[-1])}
    if bins.words is not None or bins.counts is not None:
        found[new] = int(counts[-2])
    psi, chance = (None, None) if index is None else (round(one, _DIGITS) for one in index)
    return found | {"psi": psi, "chance": chance, "level": level(index)}


def batch_words(rows: int, columns: Sequence[dict[str, Any]], unknown: str) -> str:
    moved = [one for one in sorted(columns, key=lambda one: -(one["psi"] or 0)) if one["level"]]
    said = [f"{one['name']!r} has {'shifted' if one['level'] == 'shifted' else 'moved'} (PSI {one['psi']:.2f})"
            for one in moved[:_NAMED]]  # fmt: skip
    said += [f"and {len(moved) - _NAMED} others"] if len(moved) > _NAMED else []
    counted = (("missing", "missing value", "missing values"), ("unseen", f"word {_NEW}", f"words {_NEW}"))
    for key, one_of, what in counted:
        if count := sum(one.get(key, 0) for one in columns):
            where = [repr(one["name"]) for one in columns if one.get(key, 0)]
            more = f" and {len(where) - _NAMED} others" if len(where) > _NAMED else ""
            said.append(f"{count} {what if count > 1 else one_of} in {', '.join(where[:_NAMED])}{more}")
    if unknown:
        said.append(f"PSI is unknown: {unknown}")
    elif not moved:
        said.append(f"no column has moved (PSI below {MODERATE:g}, or no more than chance)")
    else:
        said.append(f"by convention a PSI of {MODERATE:g} is a move, {LARGE:g} a shift")
    return f"{rows} row{'' if rows == 1 else 's'} scored: {'; '.join(said)}"
