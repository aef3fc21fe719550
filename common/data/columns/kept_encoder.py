"""A party's encoder on its own disk: fitted once per run, reused when the run resumes or predicts.

The file holds means, spreads and words of training rows, and a fingerprint of the table. It is never sent.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor

from colonnade.common.config.data.columns import Missing, ScaleConfig, Unseen
from colonnade.common.data.columns.distribution import DistributionFile, fit
from colonnade.common.data.columns.encode import Code, EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.columns.scale import Bends, Scaler
from colonnade.common.errors import CheckpointError, DataError
from colonnade.common.run.files import write_kept
from colonnade.common.run.json_text import sealed, unsealed
from colonnade.common.run.run_folder import MemberFolder

_ANEW = "restore it, or begin a new run"
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Values(_Record):
    """A tensor in JSON; float32 values survive the decimal notation unchanged."""

    dtype: Literal["float32", "float64"]
    shape: tuple[int, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> _Values:
        wide = tensor.dtype == torch.float64
        return cls(
            dtype="float64" if wide else "float32", shape=tuple(tensor.shape), values=tuple(tensor.flatten().tolist())
        )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if min(self.shape, default=0) < 0 or math.prod(self.shape) != len(self.values):
            raise ValueError(f"{len(self.values)} values for the shape {self.shape}")
        return self

    def tensor(self) -> Tensor:
        return torch.tensor(self.values, dtype=_DTYPES[self.dtype]).reshape(self.shape)


class _Bends(_Record):
    columns: tuple[int, ...]
    centre: _Values
    width: _Values

    @classmethod
    def of(cls, bends: Bends) -> _Bends:
        return cls(
            columns=tuple(bends.columns.tolist()), centre=_Values.of(bends.centre), width=_Values.of(bends.width)
        )

    def fits(self, count: int) -> bool:
        """True if it fits a table with this number of numeric columns."""
        shapes = {self.centre.shape, self.width.shape}
        return shapes == {(len(self.columns),)} and all(0 <= place < count for place in self.columns)

    def bends(self) -> Bends:
        return Bends(torch.tensor(self.columns), self.centre.tensor(), self.width.tensor())


class _Encoder(_Record):
    format: Literal[1] = 1
    fingerprint: str
    scale: ScaleConfig
    missing: Missing
    unseen: Unseen
    shift: _Values
    spread: _Values
    bends: _Bends | None = None  # no file of version 0.2.0 has any
    columns: tuple[Code, ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        shapes = {self.shift.shape, self.spread.shape}
        if self.columns:
            numbers = sum(code.words is None for code in self.columns)
            whole = shapes <= {(), (numbers,)} and (self.bends is None or self.bends.fits(numbers))
        else:
            whole = len(shapes) == 1 or self.shift.shape == ()  # one shift for all, with `scale: unit`
        divisors = [*self.spread.values, *(self.bends.width.values if self.bends else ())]
        numbers_of = [*self.shift.values, *divisors, *(self.bends.centre.values if self.bends else ())]
        if not whole or not all(map(math.isfinite, numbers_of)) or 0 in divisors:
            raise ValueError("shifts and spreads do not fit the columns")
        return self


class EncoderFile:
    """A member's encoder in its folder of a run. `begun`: the run's models were trained with the stored encoder."""

    def __init__(self, folder: Path, *, begun: bool) -> None:
        self._path, self._begun, self._distribution = MemberFolder(folder).encoder, begun, DistributionFile(folder)
        self.rows = MemberFolder(folder).tables / "rows.safetensors"  # what it has encoded, where that is on the disk

    @property
    def digest(self) -> str:
        """Digest of the stored encoder and of its table. Raises CheckpointError as `read`."""
        record = self._read()
        return hashlib.blake2b(record.model_dump_json().encode(), digest_size=32).hexdigest()

    def get(
        self,
        config: EncodeConfig,
        features: Features,
        train_rows: Tensor,
        ordered: Callable[[], Tensor] | None = None,
    ) -> Encoder:
        """The encoder: read if the run has begun, else fitted on rows `train_rows`, (m,) int64, and written.

        `ordered` as for `Encoder.fit`, called if needed.

        Raises:
            DataError: the table is not the one that the run was begun with, or cannot be encoded.
            CheckpointError: the file is torn or missing, or the run was begun with another encoding.
            EnvironmentFault: the disk is not writable.
        """
        if self._begun:
            record = self._read()
            self._check(record, config, features)
            return _encoder(record)
        encoder = Encoder.fit(config, features, train_rows, ordered and ordered())
        self._distribution.write(fit(features, encoder.codes, train_rows))
        self._write(encoder, features.fingerprint)
        return encoder

    def read(self) -> Encoder:
        """The encoder of a run, for predictions. Raises CheckpointError if it is torn or missing."""
        return _encoder(self._read())

    def trained(self) -> tuple[TypedColumn, ...]:
        """Columns of the training table: their names, and whether they are words or numbers.

        Empty before a run has begun, for plain values, or if the file cannot be read, which fails where it is used.
        """
        if not self._begun:
            return ()
        try:
            return tuple(TypedColumn(code.name, code.words) for code in self.read().codes)
        except CheckpointError:
            return ()

    def columns(self) -> int | None:
        """Number of columns that the encoder was fitted on; None if unknown or unreadable."""
        try:
            encoder = self.read()
        except CheckpointError:
            return None
        return len(encoder.codes) or (encoder.scaler.shift.numel() if encoder.scaler.shift.ndim else None)

    def _read(self) -> _Encoder:
        try:
            return _Encoder.model_validate_json(json.dumps(unsealed(self._path.read_bytes())))
        except FileNotFoundError:
            raise CheckpointError(f"there is no {self._path}", hint=_ANEW) from None
        except (OSError, ValueError):  # a ValidationError too
            raise CheckpointError(f"{self._path} is torn or was altered", hint=_ANEW) from None

    def _check(self, record: _Encoder, config: EncodeConfig, features: Features) -> None:
        row = tuple(features.values.shape[1:])
        if not record.columns and not {record.shift.shape, record.spread.shape} <= {(), row}:
            raise CheckpointError(f"{self._path} was altered: it is of values of another shape", hint=_ANEW)
        for key in ("scale", "missing", "unseen"):
            before, now = getattr(record, key), getattr(config, key)
            if before != now:
                raise CheckpointError(
                    f"the run was begun with data.{key} = {before} and cannot go on with {now}", hint=_ANEW
                )
        if record.fingerprint != features.fingerprint:
            raise DataError(
                "the table has changed since the run was begun: its values, columns, keys or order are others",
                hint=f"give the table of the beginning ({self._path} has its fingerprint), or begin a new run",
                shared="its table has changed since the run was begun",
            )

    def _write(self, encoder: Encoder, fingerprint: str) -> None:
        how, scaler = encoder.config, encoder.scaler
        record = _Encoder(
            fingerprint=fingerprint,
            scale=how.scale,
            missing=how.missing,
            unseen=how.unseen,
            shift=_Values.of(scaler.shift),
            spread=_Values.of(scaler.spread),
            bends=_Bends.of(scaler.bends) if scaler.bends else None,
            columns=encoder.codes,
        )
        write_kept(self._path, sealed(json.loads(record.model_dump_json())), 0o600)


def _encoder(record: _Encoder) -> Encoder:
    bends = record.bends.bends() if record.bends else None
    scaler = Scaler(record.shift.tensor(), record.spread.tensor(), bends)
    return Encoder(EncodeConfig(record.scale, record.missing, record.unseen), scaler, record.columns)
