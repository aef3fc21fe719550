"""Places of a party's rows among its draws, by their keys, because every alignment numbers rows anew.

The rows of the run's own alignment come first, in its order; rows first seen in a prediction follow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.errors import CheckpointError, InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.privacy.codes.plan import as_codes
from colonnade.common.privacy.release import Release
from colonnade.common.run.kept_tensor import ANEW, read_tensor, write_tensor
from colonnade.common.run.run_folder import PartyFolder

PLACES = "rows.safetensors"
_BYTES = 32  # length of a key's hash
_ABOUT = {"settings": "keys of the rows that have a place"}


class RowPlaces:
    """Places of the rows that a party holds now.

    Args:
        path: of the file, which holds a hash of every key.
        keys: of the rows in their current numbering, distinct, normalised.
        trained: number of rows of the run's alignment.

    Attributes:
        later: number of places of rows that the run did not have.

    Raises:
        CheckpointError: the file is missing in a prediction, is damaged, or has other rows.
    """

    def __init__(self, path: Path, keys: Sequence[str], trained: int, *, predicts: bool) -> None:
        self._path = path
        hashes = [hashlib.blake2b(key.encode(errors="surrogatepass"), digest_size=_BYTES).digest() for key in keys]
        known = self._read()
        if known is None and predicts:
            raise CheckpointError(f"{path} is missing: it says which rows have released a code", hint=ANEW)
        if known is not None and (len(known) < trained or (not predicts and known[:trained] != hashes)):
            raise CheckpointError(f"{path} is of other rows than this run's", hint=ANEW)
        there = {value: place for place, value in enumerate(known or ())}
        places = [there.setdefault(value, len(there)) for value in hashes]
        self._places, self._hashes, self.total = torch.tensor(places, dtype=torch.int64), list(there), len(there)
        self.later, self._on_disk = self.total - trained, len(known or ())

    def of(self, rows: Tensor) -> Tensor:
        """Places of rows, int64 (n,); durable when this returns.

        Args:
            rows: in their current numbering, int64 (n,).
        """
        if len(rows) and not (int(rows.min()) >= 0 and int(rows.max()) < len(self._places)):
            raise InputError(f"rows to release: expected numbers from 0 to {len(self._places) - 1}")
        if self._on_disk < self.total:
            self._write()
            self._on_disk = self.total
        return self._places[rows.cpu()]

    def _read(self) -> list[bytes] | None:
        if not self._path.exists():
            return None
        found = read_tensor(self._path, _ABOUT).numpy()
        if found.dtype != np.uint8 or found.ndim != 2 or found.shape[1] != _BYTES:
            raise CheckpointError(f"{self._path} was altered: it is of shape {found.shape}", hint=ANEW)
        return [line.tobytes() for line in found]

    def _write(self) -> None:
        values = np.frombuffer(b"".join(self._hashes), np.uint8).reshape(-1, _BYTES).copy()
        write_tensor(self._path, torch.from_numpy(values), _ABOUT)


def aligned_places(
    federation: FederationConfig,
    plan: PrivacyPlan | None,
    folder: PartyFolder,
    ids: Sequence[str] | None,
    trained: int,
    *,
    predicts: bool,
) -> RowPlaces | None:
    """Places of aligned rows; None if rows have no lasting draws, or keep their numbers. Raises CheckpointError.

    Args:
        ids: keys of the rows in their current numbering, as the table has them.
    """
    if federation.align == "none" or as_codes(plan) is None:
        return None
    return RowPlaces(folder.codes / PLACES, federation.keys.normals(ids or ()), trained, predicts=predicts)


@dataclass(frozen=True)
class PlacedRelease:
    """A privacy stage that knows rows by their places."""

    places: RowPlaces
    release: Release

    def __call__(self, private: Tensor, *, evaluation: bool = False, rows: Tensor | None = None) -> Released:
        there = None if rows is None else self.places.of(rows)
        return self.release(private, evaluation=evaluation, rows=there)
