"""Data sources of a configuration: `data` of a party, and `labels` of the server.

    data:   {source: idx, folder: mnist, split: image_rows, scale: unit}
    data:   {source: mat, path: mfeat/Handwritten.mat, view: 5}            one view of a multi-view set
    data:   {source: csv, path: clients.csv, key: client, drop: [name]}    a table: tables.py
    labels: {source: csv, path: outcome.csv, label: default, key: client}
    data:   {source: NAME, ...}                                            of another package: docs/plug_ins.md

A source with both roles takes the same keys for both. They are read in common/data/sources.py. An entry of
`colonnade.sources` names a module or another object of an installed package with one or both of

    Data      a config class of columns: `ColumnsConfig`, or `TableColumnsConfig` for a table
    Labels    a config class of labels: `LabelsConfig`, or `TableLabelsConfig` for a column of a table

whose field `source` is `Literal[NAME]`.
"""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, Field, GetCoreSchemaHandler, PositiveInt, create_model
from pydantic_core import CoreSchema, core_schema

from colonnade.common.config.data.columns import (
    AllSplit,
    ColumnsSplit,
    DataNoiseConfig,
    ImageRowsSplit,
    Noise,
    ScaleConfig,
    SplitConfig,
)
from colonnade.common.config.data.tables import TableColumnsConfig, TableData, TableLabels, TableLabelsConfig
from colonnade.common.errors import ConfigError
from colonnade.common.run.plug_ins import Extended, PlugIns
from colonnade.common.section import Section

BundledName = Literal["digits", "breast_cancer", "wine", "iris", "diabetes"]
"""Data sets of scikit-learn."""

Scale = Annotated[ScaleConfig, Field(description="scaling before the model: none, unit, standard, auto or {mean, std}")]


class SklearnSource(Section):
    """A set that comes with scikit-learn."""

    source: Literal["sklearn"] = Field(description="the source, which decides the other keys of this section")
    name: BundledName = Field(description="a data set of scikit-learn")


class SklearnData(SklearnSource):
    """Columns of a set that comes with scikit-learn."""

    split: SplitConfig = ColumnsSplit()
    scale: Scale = "standard"
    noise: Noise = None


class SklearnLabels(SklearnSource):
    """Classes of a set that comes with scikit-learn."""


class IdxSource(Section):
    """`folder` is a known set or a path, searched as in places.py."""

    source: Literal["idx"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")


class IdxData(IdxSource):
    """Pixels of MNIST, Fashion-MNIST or another set in their format."""

    split: SplitConfig = ImageRowsSplit()
    scale: Scale = "unit"
    noise: Noise = None


class IdxLabels(IdxSource):
    """Classes of MNIST, Fashion-MNIST or another set in their format."""


class CifarSource(Section):
    """CIFAR-10's binary batches, or the available ones: cifar.py. `folder` as for idx."""

    source: Literal["cifar"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")


class CifarData(CifarSource):
    """Pixels: a row is (3, 32, 32), a party's part (3, height, width)."""

    split: SplitConfig = ImageRowsSplit()
    scale: Scale = "unit"
    noise: Noise = None


class CifarLabels(CifarSource):
    """The ten classes."""


class AdultSource(Section):
    """The Adult census: adult.py. `folder` as for idx."""

    source: Literal["adult"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")


class AdultData(AdultSource):
    """Columns of the census by name, all if none are listed; words become columns of 0 and 1.

    They stay 0 and 1 under `scale: unit`. Under `standard` a rare word becomes a large number.
    """

    columns: tuple[str, ...] = Field(default=(), description="columns to take, by name; left out, all")
    split: SplitConfig = AllSplit()
    scale: Scale = "unit"
    noise: Noise = None


class AdultLabels(AdultSource):
    """The two classes."""


class MatSource(Section):
    """A multi-view set in a MATLAB file: views.py."""

    source: Literal["mat"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")


class MatData(MatSource):
    """One view, by its number from 1."""

    view: PositiveInt = Field(description="number of the view, from 1")
    split: SplitConfig = AllSplit()
    scale: Scale = "standard"
    noise: Noise = None


class MatLabels(MatSource):
    """The classes of the rows that all views share."""


class TensorSource(Section):
    """A safetensors file: tensors.py."""

    source: Literal["safetensors"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")


class TensorData(TensorSource):
    """Columns as `colonnade deal` writes them."""

    split: SplitConfig = AllSplit()
    scale: Scale = "standard"
    noise: Noise = None


class TensorLabels(TensorSource):
    """Classes as `colonnade deal` writes them. `name` is the data's name in reports."""

    name: str = Field(default="", description="name of the data in reports")


Role = Literal["Data", "Labels"]

SOURCES = PlugIns(
    "sources",
    ("sklearn", "idx", "cifar", "adult", "csv", "parquet", "arrow", "sql", "duckdb", "npy", "mat", "safetensors"),
)


class ColumnsConfig(Section):
    """Base of the `Data` of a source: columns that all rows have, without words or missing values.

    A subclass sets `source: Literal[NAME]`, adds keys of its own and may set other defaults.
    """

    source: str
    split: SplitConfig = AllSplit()
    scale: ScaleConfig = "auto"
    noise: DataNoiseConfig | None = None

    @abstractmethod
    def open(self, base: Path) -> Any:
        """Opens the source, a `Source` of common/data/columns/features.py; paths are relative to `base`. Raises
        DataError.
        """


class LabelsConfig(Section):
    """Base of the `Labels` of a source. A subclass sets `source: Literal[NAME]` and adds keys of its own.

    A source of regression targets also has a method `read_numbers(base)`.
    """

    source: str

    @abstractmethod
    def read(self, base: Path) -> Any:
        """Reads the classes, a `LabelColumn` of common/data/labels.py; `base` is that of `open`. Raises DataError."""


_NEEDED: dict[Role, tuple[type[BaseModel], ...]] = {
    "Data": (ColumnsConfig, TableColumnsConfig),
    "Labels": (LabelsConfig, TableLabelsConfig),
}


def config_class(name: str, role: Role) -> type[BaseModel]:
    """The config class of a source, from its package.

    Raises KeyError if no package registers the source, ConfigError if the package cannot be imported or has no such
    class.
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
    """Annotation of the built-in sources' union: a dict that names an outside source is validated by its class."""

    role: Role

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            self._validate, handler(source), serialization=core_schema.simple_ser_schema("any")
        )

    @property
    def plug_ins(self) -> PlugIns:
        return SOURCES

    def options(self) -> list[type[BaseModel]]:
        """Models of the sources; a source that is not imported has a stand-in with only its name."""
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


DataConfig = Annotated[
    SklearnData | IdxData | CifarData | AdultData | TableData | MatData | TensorData,
    Field(discriminator="source"),
    SourceOutside("Data"),
]
DATA_MODELS: tuple[type[BaseModel], ...] = get_args(get_args(DataConfig)[0])
"""One config class per source."""

LabelConfig = Annotated[
    SklearnLabels | IdxLabels | CifarLabels | AdultLabels | TableLabels | MatLabels | TensorLabels,
    Field(discriminator="source"),
    SourceOutside("Labels"),
]
