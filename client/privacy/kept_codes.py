"""Codes of a party's rows on its disk: each is drawn once, and the same draw is sent whenever the row is requested.

A second draw of a row would cost its epsilon again. Draws are therefore durable before they leave, and a row keeps its
draw even if its code changes later.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.privacy.laplace import Bits
from colonnade.common.privacy.subsets import SubsetSelection
from colonnade.common.run.kept_tensor import ANEW, read_tensor, write_tensor


class KeptCodes:
    """Releases the codes of rows by subset selection; a row costs the mechanism's epsilon once over the whole run.

    Every call writes all draws so far, one bit per row and code: ask for many rows at once.

    Args:
        path: None keeps draws in memory.
        mechanism: number of codes k, and size of their sets.
        begun: True if codes may have left in an earlier start: the file must then exist.
        later: number of rows, the last ones, that were added after training.

    Raises:
        CheckpointError: the file is missing although codes have left, is damaged, or has other settings.
    """

    def __init__(
        self, path: Path | None, mechanism: SubsetSelection, rows: int, *, begun: bool, bits: Bits, later: int = 0
    ) -> None:
        self._path, self._mechanism, self._bits, self._later = path, mechanism, bits, later
        a, b = mechanism.odds
        self._about = {"settings": json.dumps([rows - later, mechanism.classes, mechanism.size, a, b])}
        self._sets = np.zeros((rows, -(-mechanism.classes // 8)), np.uint8)  # no bit is set until a row is drawn
        if path is not None and path.exists():
            self._sets = self._read(path)
        elif path is not None and begun:
            raise CheckpointError(f"{path} is missing, and codes of these rows may have left", hint=ANEW)

    @property
    def drawn(self) -> Tensor:
        """Rows that have a draw, bool (rows,)."""
        return torch.from_numpy(self._sets.any(axis=1))

    def create(self) -> None:
        """Writes the file before anything is drawn, so that a loss is noticed. Raises EnvironmentFault."""
        if self._path is not None and not self._path.exists():
            self._write(self._sets)

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """Sets of the given rows, drawn now for those that have none; all are durable when this returns.

        Args:
            rows: int64 (n,), distinct.
            codes: from 0 to k - 1, int64 (n,).

        Returns:
            Membership as 1 and 0, float64 (n, k).

        Raises:
            InputError: a row or a code is outside its range, or a row is repeated.
            EnvironmentFault: the draws cannot be written; none is used then.
        """
        at, of = rows.cpu().numpy(), codes.cpu().numpy()
        self._refuse(at, of)
        new = ~self._sets[at].any(axis=1)
        if new.any():
            sets = self._sets.copy()
            sets[at[new]] = np.packbits(self._mechanism.select(of[new], self._bits), axis=1)
            self._write(sets)
            self._sets = sets
        found = np.unpackbits(self._sets[at], axis=1, count=self._mechanism.classes)
        return torch.from_numpy(found).to(torch.float64)

    def _refuse(self, rows: np.ndarray, codes: np.ndarray) -> None:
        if rows.ndim != 1 or rows.shape != codes.shape or rows.dtype != np.int64 or codes.dtype != np.int64:
            raise InputError("rows and codes: expected two lists of whole numbers, of one length")
        if len(rows) and not (
            rows.min() >= 0 and rows.max() < len(self._sets) and len(set(rows.tolist())) == len(rows)
        ):
            raise InputError(f"rows to release: expected numbers from 0 to {len(self._sets) - 1}, each once")
        if len(codes) and not (codes.min() >= 0 and codes.max() < self._mechanism.classes):
            raise InputError(f"codes to release: expected numbers from 0 to {self._mechanism.classes - 1}")

    def _read(self, path: Path) -> np.ndarray:
        sets = read_tensor(path, self._about).numpy()
        rows, width = self._sets.shape
        if sets.ndim != 2 or not rows - self._later <= len(sets) <= rows or sets.shape[1:] != (width,):
            raise CheckpointError(f"{path} was altered, or is newer than the rows beside it: {sets.shape}", hint=ANEW)
        if sets.dtype != np.uint8:
            raise CheckpointError(f"{path} was altered: it is of {sets.dtype}", hint=ANEW)
        return np.concatenate([sets, self._sets[len(sets) :]])

    def _write(self, sets: np.ndarray) -> None:
        if self._path is not None:
            write_tensor(self._path, torch.from_numpy(sets), self._about)
