"""Data sources: from the configuration to features and labels.

    data:   {source: sklearn, name: digits, split: image_rows}             a party's columns
    data:   {source: idx, folder: mnist, split: image_rows, scale: unit}
    data:   {source: cifar, folder: cifar10, split: image_rows}                batches of CIFAR-10
    data:   {source: sklearn, name: digits, noise: {std: 1.0}}             noise, for experiments
    data:   {source: adult, folder: adult, columns: [age, sex]}            some of the Adult census
    data:   {source: mat, path: mfeat/Handwritten.mat, view: 5}            one view of a multi-view set
    data:   {source: safetensors, path: columns.safetensors}               as written by `colonnade deal`
    data:   {source: csv, path: clients.csv, key: client, drop: [name]}    a table: tables.py
    labels: {source: csv, path: outcome.csv, label: default, key: client}  the server's classes
    data:   {source: NAME, ...}                                            of another package: outside.py

A source with both roles takes the same keys for both, so a benchmark names it once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt
from torch import Tensor

from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, Source
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.noise import DataNoiseConfig
from colonnade.common.data.columns.scale import Columns, ScaleConfig, Scaler
from colonnade.common.data.formats.idx import IdxImages, holds, read_labels
from colonnade.common.data.formats.tensors import TensorColumns, read_tensor_labels, read_tensor_targets
from colonnade.common.data.known_sets import adult, cifar
from colonnade.common.data.known_sets.bundled import Bundled, BundledName
from colonnade.common.data.known_sets.catalogue import KNOWN
from colonnade.common.data.known_sets.places import find, find_file
from colonnade.common.data.known_sets.views import MatView, read_classes
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.outside import SOURCES, SourceOutside, check_columns, check_label_column
from colonnade.common.data.split import AllSplit, ColumnsSplit, ImageRowsSplit, PartyIndex, SplitConfig
from colonnade.common.data.table_cache import TableCache
from colonnade.common.data.tables import TableColumnsConfig, TableData, TableLabels, TableLabelsConfig
from colonnade.common.data.targets import Task
from colonnade.common.errors import ConfigError, DataError


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Sklearn(_Config):
    source: Literal["sklearn"] = Field(description="the source, which decides the other keys of this section")
    name: BundledName = Field(description="a data set of scikit-learn")


class SklearnData(_Sklearn):
    """Columns of a set that comes with scikit-learn."""

    split: SplitConfig = Field(default=ColumnsSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="standard", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:  # noqa: ARG002
        """The set, from scikit-learn; `base` is ignored."""
        return Bundled(self.name)


class SklearnLabels(_Sklearn):
    """Classes of a set that comes with scikit-learn."""

    def read(self, base: Path) -> LabelColumn:  # noqa: ARG002
        """The set's own labels."""
        bundled = Bundled(self.name)
        return LabelColumn(bundled.labels(), bundled.classes)

    def read_numbers(self, base: Path) -> LabelColumn:  # noqa: ARG002
        """The set's regression targets, (n, 1)."""
        return LabelColumn(Bundled(self.name).targets(), ())


class _Idx(_Config):
    """`folder` is a known set or a path, searched as in places.py."""

    source: Literal["idx"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")


class IdxData(_Idx):
    """Pixels of MNIST, Fashion-MNIST or another set in their format."""

    split: SplitConfig = Field(default=ImageRowsSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="unit", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:
        """Reads the headers. Raises DataError if the set is not found or no idx set."""
        folder = find(self.folder, base, lambda path: holds(path, "images-idx3"), "images in idx format")
        return IdxImages(folder)


class IdxLabels(_Idx):
    """Classes of MNIST, Fashion-MNIST or another set in their format."""

    def read(self, base: Path) -> LabelColumn:
        """The set's own labels, with names where the set is known. Raises DataError as `IdxData.open`."""
        folder = find(self.folder, base, lambda path: holds(path, "labels-idx1"), "labels in idx format")
        values, official_test = read_labels(folder)
        count = int(values.max()) + 1
        known = KNOWN[self.folder].classes if self.folder in KNOWN else ()
        classes = known if len(known) == count else tuple(str(number) for number in range(count))
        return LabelColumn(values, classes, official_test)


class _Cifar(_Config):
    """CIFAR-10's binary batches, or the available ones: cifar.py. `folder` as for idx."""

    source: Literal["cifar"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")

    def _find(self, base: Path) -> Path:
        return find(self.folder, base, cifar.holds, "batches of CIFAR-10")


class CifarData(_Cifar):
    """Pixels: a row is (3, 32, 32), a party's part (3, height, width)."""

    split: SplitConfig = Field(default=ImageRowsSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="unit", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:
        """Counts the rows. Raises DataError if the set is not found or a batch is not whole."""
        return cifar.CifarImages(self._find(base))


class CifarLabels(_Cifar):
    """The ten classes."""

    def read(self, base: Path) -> LabelColumn:
        """The set's own labels. Raises DataError as `CifarData.open`, or if a label is none of the ten."""
        values, official_test = cifar.read_labels(self._find(base))
        return LabelColumn(values, KNOWN["cifar10"].classes, official_test)


class _Adult(_Config):
    """The Adult census: adult.py. `folder` as for idx."""

    source: Literal["adult"] = Field(description="the source, which decides the other keys of this section")
    folder: str = Field(description="a known data set (`colonnade datasets`), or a folder")

    def _find(self, base: Path) -> Path:
        return find(self.folder, base, adult.holds, "adult.data and adult.test")


class AdultData(_Adult):
    """Columns of the census by name, all if none are listed; words become columns of 0 and 1.

    They stay 0 and 1 under `scale: unit`. Under `standard` a rare word becomes a large number.
    """

    columns: tuple[str, ...] = Field(default=(), description="columns to take, by name; left out, all")
    split: SplitConfig = Field(default=AllSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="unit", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:
        """Reads the columns. Raises DataError if the set is not found or damaged, ConfigError for a wrong column."""
        return adult.Adult(self._find(base), self.columns)


class AdultLabels(_Adult):
    """The two classes."""

    def read(self, base: Path) -> LabelColumn:
        """The set's own labels. Raises DataError as `AdultData.open`."""
        values, official_test = adult.read_labels(self._find(base))
        return LabelColumn(values, adult.CLASSES, official_test)


class _Mat(_Config):
    """A multi-view set in a MATLAB file: views.py."""

    source: Literal["mat"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")

    def _find(self, base: Path) -> Path:
        return find_file(self.path, base)


class MatData(_Mat):
    """One view, by its number from 1."""

    view: PositiveInt = Field(description="number of the view, from 1")
    split: SplitConfig = Field(default=AllSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="standard", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:
        """The view. Raises DataError if there is no such file; `MatView` reads it."""
        return MatView(self._find(base), self.view)


class MatLabels(_Mat):
    """The classes of the rows that all views share."""

    def read(self, base: Path) -> LabelColumn:
        """Classes numbered from 0. Raises DataError if the file is missing or of another kind."""
        return read_classes(self._find(base))


class _Tensors(_Config):
    """A safetensors file: tensors.py."""

    source: Literal["safetensors"] = Field(description="the source, which decides the other keys of this section")
    path: str = Field(description="the file; relative to the configuration's folder, then to $COLONNADE_DATA")

    def _find(self, base: Path) -> Path:
        return find_file(self.path, base)


class TensorData(_Tensors):
    """Columns as `colonnade deal` writes them."""

    split: SplitConfig = Field(default=AllSplit(), description="the part of every row that is the party's own")
    scale: ScaleConfig = Field(
        default="standard", description="scaling before the model: none, unit, standard, auto or {mean, std}"
    )
    noise: DataNoiseConfig | None = Field(default=None, description="Gaussian noise on the values, for experiments")

    def open(self, base: Path) -> Source:
        """The file. Raises DataError if there is none; `TensorColumns` reads it."""
        return TensorColumns(self._find(base))


class TensorLabels(_Tensors):
    """Classes as `colonnade deal` writes them. `name` is the data's name in reports."""

    name: str = Field(default="", description="name of the data in reports")

    def read(self, base: Path) -> LabelColumn:
        """The classes. Raises DataError if there is no such file, or a label is wrong."""
        return read_tensor_labels(self._find(base))

    def read_numbers(self, base: Path) -> LabelColumn:
        """The regression targets. Raises DataError like `read`."""
        return read_tensor_targets(self._find(base))


DataConfig = Annotated[
    SklearnData | IdxData | CifarData | AdultData | TableData | MatData | TensorData,
    Field(discriminator="source"),
    SourceOutside("Data"),
]
"""A party's configuration under `data`."""

DATA_MODELS: tuple[type[BaseModel], ...] = get_args(get_args(DataConfig)[0])
"""One config class per source."""

LabelConfig = Annotated[
    SklearnLabels | IdxLabels | CifarLabels | AdultLabels | TableLabels | MatLabels | TensorLabels,
    Field(discriminator="source"),
    SourceOutside("Labels"),
]
"""The server's configuration under `labels`."""


def load_features(
    config: DataConfig,
    member: PartyIndex,
    base: Path,
    cache: TableCache | None = None,
    kept: EncoderFile | None = None,
) -> Features:
    """Reads a party's columns, not encoded.

    Args:
        config: the party's `data`.
        member: its place in the roster, which a split may go by.
        base: the folder that paths are relative to: the configuration file's.
        cache: copies of the member's tables in the run's folder; None for none.
        kept: the run's encoder file: a table is read by the names and types of its columns in training; None, or one
            of a run that has not begun, infers them.

    Raises:
        DataError: the source is not found or not usable, or lacks a column of training.
        ConfigError: the split does not fit the source or the roster.
    """
    if config.source in SOURCES.entries:
        with SOURCES.blamed(config.source, DataError):
            return check_columns(config.source, _load_features(config, member, base, kept))
    if isinstance(config, TableColumnsConfig):
        return config.features(member, base, cache, () if kept is None else kept.trained())
    return _load_features(config, member, base)


def column_names(config: DataConfig, member: PartyIndex, base: Path) -> tuple[str, ...]:
    """Names of a party's columns; of tables, no row is read. Arguments and errors as of `load_features`."""
    if isinstance(config, TableColumnsConfig):
        return config.names(member, base)
    source = config.open(base)
    return config.split.part(source.shape, source.names, member).pick(source.names)


def _load_features(config: DataConfig, member: PartyIndex, base: Path, kept: EncoderFile | None = None) -> Features:
    if isinstance(config, TableColumnsConfig):
        return config.features(member, base, trained=() if kept is None else kept.trained())
    source = config.open(base)
    part = config.split.part(source.shape, source.names, member)
    if not part.pick(source.names):
        raise DataError(f"source {config.source!r} leaves no column", hint="a party brings one at least: see `split`")
    return Features(source.read(part), part.pick(source.names), source.official_test, source.ids())


def prepare(
    config: DataConfig, features: Features, train_rows: Tensor, seed: int, party: str, kept: EncoderFile | None = None
) -> Columns:
    """A party's values as its model sees them: encoded, and with noise if configured.

    Args:
        config: the party's `data`.
        features: of all rows, in the agreed order.
        train_rows: (m,) int64; the encoder is fitted on these alone.
        seed, party: seed of the noise.
        kept: the run's encoder file; None fits an encoder without storing it.

    Raises:
        DataError: values cannot be encoded, or the table has changed since the run was begun.
        CheckpointError: the stored encoder is torn, or of another configuration.
    """
    how = encoding(config)
    encoder = Encoder.fit(how, features, train_rows) if kept is None else kept.get(how, features, train_rows)
    return _columns(config, encoder, features, (seed, party), train_rows)


def prepare_others(config: DataConfig, features: Features, seed: int, party: str, kept: EncoderFile) -> Columns:
    """The same for rows to predict, with the encoder that the model was trained with.

    Raises:
        DataError: the columns differ, or values cannot be encoded.
        CheckpointError: the encoder is torn or missing.
    """
    return _columns(config, kept.read(), features, (seed, party))


def _columns(
    config: DataConfig, encoder: Encoder, features: Features, of: tuple[int, str], train_rows: Tensor | None = None
) -> Columns:
    """`of`: seed and party, from which the noise is drawn."""
    coded = (encoder.apply(features), Scaler.none()) if encoder.codes else (features.values, encoder.scaler)
    columns = Columns(*coded)
    if config.noise is None:
        return columns
    return Columns(config.noise.on(columns[torch.arange(len(features.values))], *of, train_rows), Scaler.none())


def encoding(config: DataConfig) -> EncodeConfig:
    """Encoding settings of a source: only tables configure more than the scale."""
    if isinstance(config, TableColumnsConfig):
        return EncodeConfig(config.scale, config.missing, config.unseen)
    return EncodeConfig(config.scale)


def load_labels(
    config: LabelConfig, base: Path, task: Task = "classification", cache: TableCache | None = None
) -> LabelColumn:
    """Reads the server's labels; no feature is read.

    Args:
        config: the server's `labels`.
        base: the folder that paths are relative to: the configuration file's.
        task: `federation.task`: classes or numbers.
        cache: copies of the server's tables in the run's folder; None for none.

    Raises:
        DataError: the source is not found, or a label is missing, no class or no number.
        ConfigError: the source does not have the labels that the task needs.
    """
    if config.source in SOURCES.entries:
        with SOURCES.blamed(config.source, DataError):
            found = _load_labels(config, base, task)
            return check_label_column(config.source, found, numbers=task == "regression")
    if isinstance(config, TableLabelsConfig):
        return config.read(base, cache) if task == "classification" else config.read_numbers(base, cache)
    return _load_labels(config, base, task)


def _load_labels(config: LabelConfig, base: Path, task: Task) -> LabelColumn:
    if task == "classification":
        return config.read(base)
    read_numbers: Callable[[Path], LabelColumn] | None = getattr(config, "read_numbers", None)
    if read_numbers is None:
        raise ConfigError(
            f"server.labels.source = {config.source!r} has classes and no numbers to be predicted",
            hint="take sklearn (diabetes), a table or safetensors, or set federation.task to classification",
        )
    return read_numbers(base)
