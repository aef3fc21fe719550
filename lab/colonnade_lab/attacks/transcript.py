"""All captured values of a row in one field, combined over epochs.

Noise protects one message of a row, but not many: fresh noise averages out, while the messages' information about the
row stays. Models move meanwhile, so a mean over all epochs also averages different embeddings. The means of a few
windows of epochs, side by side, keep the movement, and their principal components keep what the windows have in common.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from colonnade.client.transcript.capture import Way
from colonnade_lab.attacks.rows import FieldRecords, Piece
from colonnade_lab.attacks.run import AttackedRun

WINDOWS = 12
"""Most windows of a transcript."""

Rows = tuple[Tensor, Tensor]
"""Row numbers, int64 (n,) ascending, and their values, float32 (n, width)."""


class Transcript:
    """Sums of every row's values in windows of `length` epochs; `prepare` is applied to every message's values."""

    def __init__(self, length: int, prepare: Callable[[Tensor], Tensor] = lambda values: values) -> None:
        self._length, self._prepare = length, prepare
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, Tensor] = {}

    def add(self, piece: Piece) -> None:
        """Adds a message's values, one number or one vector per row."""
        values = self._prepare(piece.values.reshape(len(piece.rows), -1).float())
        window, most = (piece.epoch - 1) // self._length, 1 + int(piece.rows.max())
        total, count = self._grown(window, most, values.shape[1])
        total[piece.rows] += values
        count[piece.rows] += 1

    def mean(self) -> Rows:
        """Returns the mean of every row over all its messages."""
        size = max(map(len, self._counts.values()))
        total = torch.stack([_filled(part, size) for part in self._sums.values()]).sum(0)
        count = torch.stack([_filled(part, size) for part in self._counts.values()]).sum(0)
        rows = count.nonzero().flatten()
        return rows, total[rows] / count[rows, None]

    def windows(self) -> Rows:
        """The windows' means side by side, each centred and on one scale; zeros where a row has no message."""
        rows, _ = self.mean()
        parts = []
        for window in sorted(self._sums):
            size = 1 + int(rows.max())
            total, count = _filled(self._sums[window], size)[rows], _filled(self._counts[window], size)[rows]
            there = count > 0
            mean = torch.zeros_like(total)
            found = total[there] / count[there, None]
            mean[there] = (found - found.mean(0)) / found.std(correction=0).clamp(min=1e-30)
            parts.append(mean)
        return rows, torch.cat(parts, dim=1)

    def _grown(self, window: int, size: int, width: int) -> tuple[Tensor, Tensor]:
        total = self._sums.get(window, torch.zeros(0, width))
        if len(total) < size:
            self._sums[window] = _filled(total, size)
            self._counts[window] = _filled(self._counts.get(window, torch.zeros(0, dtype=torch.int64)), size)
        return self._sums[window], self._counts[window]


def gathered(found: Iterable[Piece], way: Way, *makes: Callable[[], FieldRecords | Transcript]) -> list[dict[str, Any]]:
    """Feeds one direction to several collectors in a single reading, and returns their results by KIND.FIELD."""
    fields: list[dict[str, FieldRecords | Transcript]] = [{} for _ in makes]
    for piece in found:
        if piece.way == way:
            for made, make in zip(fields, makes, strict=True):
                made.setdefault(piece.name, make()).add(piece)
    return fields


def window_length(run: AttackedRun) -> int:
    """Returns the epochs per window so that a run has at most `WINDOWS`."""
    return max(1, math.ceil(run.epochs / WINDOWS))


def principal(values: Tensor, most: int) -> Tensor:
    """Returns the leading principal components of (n, width), float32 (n, at most `most`)."""
    centred = (values - values.mean(0)).double()
    count = min(most, *centred.shape)
    left, sizes, _ = randomized_svd(centred.numpy(), count, random_state=0)
    return torch.from_numpy(left * sizes).float()


def _filled(values: Tensor, size: int) -> Tensor:
    """Pads with zeros to `size` entries in the first dimension."""
    return torch.cat([values, values.new_zeros(size - len(values), *values.shape[1:])])
