"""Data sources of other installed packages: `data: {source: NAME, ...}` and `labels: {source: NAME, ...}`.

An entry of `colonnade.sources` names a module or another object with one or both of

    Data      a config class of columns: `ColumnsConfig`, or `TableColumnsConfig` for a table
    Labels    a config class of labels: `LabelsConfig`, or `TableLabelsConfig` for a column of a table

whose field `source` is `Literal[NAME]`. See docs/plug_ins.md.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from pydantic import BaseModel, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema, core_schema
from torch import Tensor

from colonnade.common.data.columns.features import Features, Source
from colonnade.common.data.columns.noise import DataNoiseConfig
from colonnade.common.data.columns.scale import ScaleConfig
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.split import AllSplit, Part, Shape, SplitConfig
from colonnade.common.data.tables import TableColumnsConfig, TableLabelsConfig
from colonnade.common.errors import ConfigError
from colonnade.common.runtime.plug_ins import Extended, PlugIns
from colonnade.common.section import Section

Role = Literal["Data", "Labels"]

SOURCES = PlugIns(
    "sources",
    ("sklearn", "idx", "cifar", "adult", "csv", "parquet", "arrow", "sql", "npy", "mat", "safetensors"),
)
"""Sources of installed packages."""


class ColumnsConfig(Section):
    """Base of the `Data` of a source: columns that all rows have, without words or missing values.

    A subclass sets `source: Literal[NAME]`, adds keys of its own and may set other defaults.
    """

    source: str
    split: SplitConfig = AllSplit()
    scale: ScaleConfig = "auto"
    noise: DataNoiseConfig | None = None

    @abstractmethod
    def open(self, base: Path) -> Source:
        """Opens the source; `base` is the folder that paths are relative to. Raises DataError."""


class LabelsConfig(Section):
    """Base of the `Labels` of a source. A subclass sets `source: Literal[NAME]` and adds keys of its own.

    A source of numbers to be predicted has a method `read_numbers(base)` too.
    """

    source: str

    @abstractmethod
    def read(self, base: Path) -> LabelColumn:
        """Reads the classes; `base` is the folder that paths are relative to. Raises DataError."""


@dataclass(frozen=True)
class Matrix:
    """Columns in memory, as an opened source.

    Args:
        values: (rows, columns), or (rows, height, width), or (rows, channels, height, width); float64 or bytes.
        names: one a column or pixel, in the order of the flattened row.
        keys: key of each row; None where rows are matched by their order.
        official_test: number of last rows that are the source's own test part.
    """

    values: Tensor
    names: tuple[str, ...]
    keys: tuple[str, ...] | None = None
    official_test: int = 0

    @property
    def shape(self) -> Shape:
        """Shape of one row."""
        return tuple(self.values.shape[1:])

    def read(self, part: Part) -> Tensor:
        """The part of all rows."""
        return self.values.flatten(1)[:, part.positions].reshape(-1, *part.shape)

    def ids(self) -> tuple[str, ...] | None:
        """Key of each row, or None."""
        return self.keys


_NEEDED: dict[Role, tuple[type[BaseModel], ...]] = {
    "Data": (ColumnsConfig, TableColumnsConfig),
    "Labels": (LabelsConfig, TableLabelsConfig),
}


def config_class(name: str, role: Role) -> type[BaseModel]:
    """The config class of a source, from its package.

    Raises:
        KeyError: no package registers it.
        ConfigError: the package cannot be imported, or has no such class.
    """
    holder = SOURCES.load(name)
    found = getattr(holder, role, None)
    if found is None:
        other = {"Data": "columns", "Labels": "labels"}[role]
        raise SOURCES.unfit(name, f"it has no {other}, since {SOURCES.entries[name].value} has no {role}")
    bases = _NEEDED[role]
    if not (isinstance(found, type) and issubclass(found, bases)):
        raise SOURCES.unfit(name, f"{role} is not derived from {' or '.join(base.__name__ for base in bases)}")
    field = found.model_fields.get("source")
    if field is None or get_args(field.annotation) != (name,):
        raise SOURCES.unfit(name, f"the field `source` of {role} is not Literal[{name!r}]")
    return found


@dataclass(frozen=True)
class SourceOutside(Extended):
    """Annotation of the built-in sources' union: a dict that names an outside source is validated by its class.

    Args:
        role: of the section.
    """

    role: Role

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The union's own schema, after a look at the source."""
        return core_schema.no_info_wrap_validator_function(
            self._validate, handler(source), serialization=core_schema.simple_ser_schema("any")
        )

    @property
    def plug_ins(self) -> PlugIns:
        """The sources."""
        return SOURCES

    def options(self) -> list[type[BaseModel]]:
        """Models of the sources: of those not imported a stand-in that has only its name."""
        return [self._option(name) for name in SOURCES.entries]

    def _option(self, name: str) -> type[BaseModel]:
        with suppress(ConfigError):  # it was refused when it was named
            if name in SOURCES.loaded:
                return config_class(name, self.role)
        fields: dict[str, Any] = {"source": (Literal[name], ...)}
        return create_model("_Outside", **fields)

    def _validate(self, value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if isinstance(value, _NEEDED[self.role]):
            name = getattr(value, "source", None)
            return value if name in SOURCES.entries else handler(value)
        name = value.get("source") if isinstance(value, dict) else None
        if not isinstance(name, str):
            return handler(value)
        SOURCES.refuse_clash(name)
        return config_class(name, self.role).model_validate(value) if name in SOURCES.entries else handler(value)


def check_columns(name: str, features: Features) -> Features:
    """The same columns of an outside source. Raises ConfigError if they are of the wrong kind."""
    values = features.values
    if not isinstance(values, Tensor) or values.dtype not in (torch.uint8, torch.float64) or values.ndim < 2:
        kind = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
        raise SOURCES.unfit(name, f"its columns are {kind}, expected a tensor (rows, ...) of float64 or bytes")
    if features.ids is not None and len(features.ids) != len(values):
        raise SOURCES.unfit(name, f"it has {len(features.ids)} keys for {len(values)} rows")
    if not features.fields and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a value is missing or not finite; only tables may have missing values")
    return features


def check_label_column(name: str, labels: Any, *, numbers: bool) -> LabelColumn:
    """The same labels of an outside source. Raises ConfigError if they are of the wrong kind."""
    if not isinstance(labels, LabelColumn) or not isinstance(labels.values, Tensor):
        raise SOURCES.unfit(name, f"its labels are {type(labels).__name__}, expected LabelColumn of a tensor")
    values, ids = labels.values, labels.ids
    dtype, ndim = (torch.float64, 2) if numbers else (torch.int64, 1)
    if values.dtype != dtype or values.ndim != ndim or not len(values):
        expected = "float64 (rows, targets)" if numbers else "int64 (rows,)"
        raise SOURCES.unfit(name, f"its labels are {values.dtype} {tuple(values.shape)}, expected {expected}")
    if ids is not None and len(ids) != len(values):
        raise SOURCES.unfit(name, f"it has {len(ids)} keys for {len(values)} labels")
    if not numbers and not 0 <= int(values.min()) <= int(values.max()) < len(labels.classes):
        said = f"its class numbers run from {int(values.min())} to {int(values.max())}"
        raise SOURCES.unfit(name, f"{said}, and it names {len(labels.classes)} classes")
    if numbers and not bool(values.isfinite().all()):
        raise SOURCES.unfit(name, "a number to be predicted is not finite")
    return labels
