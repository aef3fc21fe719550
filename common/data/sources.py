"""Reading of data sources (common/config/data/sources.py): from the configuration to features and labels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import (
    SOURCES,
    AdultData,
    AdultLabels,
    AdultSource,
    CifarData,
    CifarLabels,
    CifarSource,
    ColumnsConfig,
    DataConfig,
    IdxData,
    IdxLabels,
    LabelConfig,
    LabelsConfig,
    MatData,
    MatLabels,
    SklearnData,
    SklearnLabels,
    TensorData,
    TensorLabels,
)
from colonnade.common.config.data.tables import TableColumnsConfig, TableConfig, TableLabelsConfig
from colonnade.common.config.run_options import Task
from colonnade.common.data.columns.doubts import new_words
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, Source
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.data.columns.noise import noised
from colonnade.common.data.columns.row_store import RowStore
from colonnade.common.data.columns.scale import Columns, Scaler
from colonnade.common.data.formats.idx import IdxImages, holds, read_labels
from colonnade.common.data.formats.tensors import read_tensor_columns, read_tensor_labels, read_tensor_targets
from colonnade.common.data.known_sets import adult, cifar
from colonnade.common.data.known_sets.bundled import Bundled
from colonnade.common.data.known_sets.catalogue import KNOWN, find, find_file
from colonnade.common.data.known_sets.views import read_classes as read_view_classes
from colonnade.common.data.known_sets.views import read_view
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.on_disk import in_order, training_first
from colonnade.common.data.outside import check_columns, check_label_column
from colonnade.common.data.split import part_of
from colonnade.common.data.table_cache import TableCache
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.run.activity import Activity, activity
from colonnade.common.run.run_folder import describe_source
from colonnade.common.version import VERSION


def load_features(
    config: DataConfig,
    member: PartyIndex,
    base: Path,
    cache: TableCache | None = None,
    kept: EncoderFile | None = None,
) -> Features:
    """Reads a party's columns, not encoded.

    Args:
        member: its place in the roster, which a split may use.
        base: the configuration file's folder, to which paths are relative.
        cache: copies of the member's tables in the run's folder; None for none.
        kept: the run's encoder file, which gives the names and types of a table's columns in training. Without it, or
            before the run begins, they are inferred.

    Raises:
        DataError: the source is not found or not usable, or lacks a column of training.
        ConfigError: the split does not fit the source or the roster.
    """
    with _reading(config):
        if config.source in SOURCES.entries:
            with SOURCES.blamed(config.source, DataError):
                return check_columns(config.source, _load_features(config, member, base, kept))
        return _load_features(config, member, base, kept, cache)


def _reading(config: DataConfig | LabelConfig) -> AbstractContextManager[Activity]:
    return activity(f"reading {describe_source(config.model_dump(mode='json'))}")


def open_source(config: DataConfig, base: Path) -> Source:
    """Opens a source that is not a table: reads its headers. Raises DataError, or ConfigError for an unknown column."""
    source: Source
    match config:
        case SklearnData():
            source = Bundled(config.name)
        case IdxData():
            source = IdxImages(
                find(config.folder, base, lambda path: holds(path, "images-idx3"), "images in idx format")
            )
        case CifarData():
            source = cifar.CifarImages(_folder(config, base))
        case AdultData():
            source = adult.read_columns(_folder(config, base), config.columns)
        case MatData():
            source = read_view(find_file(config.path, base), config.view)
        case TensorData():
            source = read_tensor_columns(find_file(config.path, base))
        case _:
            source = cast(ColumnsConfig, config).open(base)
    return source


def column_names(config: DataConfig, member: PartyIndex, base: Path) -> tuple[str, ...]:
    """Names of a party's columns; reads no row of a table. Arguments and errors as for `load_features`."""
    if isinstance(config, TableColumnsConfig):
        from colonnade.common.data.tables import read_names  # noqa: PLC0415  # pyarrow takes 0.2 s

        return read_names(config, member, base)
    source = open_source(config, base)
    return part_of(config.split, source.shape, source.names, member).pick(source.names)


def refuse_own_labels(labels: LabelConfig, data: DataConfig, member: PartyIndex, where: str, base: Path) -> None:
    """Refuses columns of the labels' own table that have the label, or the rows' weights, among them. Reads no row."""
    if not isinstance(labels, TableLabelsConfig) or not isinstance(data, TableColumnsConfig):
        return
    try:
        table = _origin(labels, base)
    except DataError as missing:
        raise missing.of("server") from missing
    if table != _origin(data, base):
        return
    outcome = {labels.label} if isinstance(labels.label, str) else {*labels.label}
    names = column_names(data, member, base)
    if found := [name for name in names if name in outcome or name == labels.weight]:
        what = "the label" if found[0] in outcome else "the rows' weight"
        raise DataError(
            f"{where}: its table is that of server.labels, and {found[0]!r}, {what}, would be a feature",
            hint=f"leave it out with `drop: [{', '.join(found)}]`, or list the features under `columns`",
        )


def _origin(config: TableConfig, base: Path) -> dict[str, object]:
    """What says which table it is, whatever is taken of it."""
    how = {"delimiter", "encoding", "cache", "name", *TableColumnsConfig.model_fields, *TableLabelsConfig.model_fields}
    found = config.model_dump(exclude=how)
    path = found.get("path")
    if isinstance(path, str) and path and "://" not in path:
        found["path"] = find(path, base, Path.exists, "file").resolve()
    return found


def _load_features(
    config: DataConfig,
    member: PartyIndex,
    base: Path,
    kept: EncoderFile | None = None,
    cache: TableCache | None = None,
) -> Features:
    if isinstance(config, TableColumnsConfig):
        from colonnade.common.data.tables import read_features  # noqa: PLC0415  # pyarrow takes 0.2 s

        return read_features(config, member, base, cache, () if kept is None else kept.trained())
    source = open_source(config, base)
    part = part_of(config.split, source.shape, source.names, member)
    if not part.pick(source.names):
        raise DataError(f"source {config.source!r} leaves no column", hint="a party brings one at least: see `split`")
    return Features(source.read(part), part.pick(source.names), source.official_test, source.ids())


def prepare(
    config: DataConfig,
    features: Features,
    train_rows: Tensor,
    seed: int,
    party: str,
    kept: EncoderFile | None = None,
    *,
    typed: bool = False,
) -> Columns:
    """A party's values as its model sees them: encoded, and with noise if configured; or its table as it is.

    Args:
        features: all rows, in the agreed order.
        train_rows: (m,) int64; the encoder is fitted on these alone.
        seed, party: seed of the noise.
        kept: the run's encoder file; None fits an encoder without storing it.
        typed: True for the table instead of its encoding.

    Raises:
        DataError: values cannot be encoded, or the table has changed since the run was begun.
        CheckpointError: the stored encoder is torn, or of another configuration.
        ConfigError: noise is configured, which a table before encoding does not have.
    """
    how = replace(encoding(config), scale="none") if typed else encoding(config)
    with activity(f"encoding the columns of {party}"):
        if features.disk is not None and not typed:
            columns = _on_disk(how, features, train_rows, kept)
            columns.doubts = tuple(new_words(features, train_rows))
            return columns
        encoder = Encoder.fit(how, features, train_rows) if kept is None else kept.get(how, features, train_rows)
        columns = _columns(config, encoder, features, (seed, party), train_rows, typed=typed)
        columns.doubts = tuple(new_words(features, train_rows))
        return columns


def prepare_others(
    config: DataConfig, features: Features, seed: int, party: str, kept: EncoderFile, *, typed: bool = False
) -> Columns:
    """`prepare` for rows to predict, with the encoder that the model was trained with."""
    encoder = kept.read()
    if features.disk is not None and not typed:
        store = RowStore(None, features.disk)
        shape = len(features.values), encoder.width
        return store.written("", encoder.blocks(features), shape, encoder.named(features.names))
    return _columns(config, encoder, features, (seed, party), typed=typed)


def _on_disk(how: EncodeConfig, features: Features, train_rows: Tensor, kept: EncoderFile | None) -> Columns:
    """Columns in a file, training rows first; that of an earlier start, if its rows and its encoder are the same."""
    assert features.disk is not None
    order, disk = training_first(train_rows.numpy(), len(features.values)), features.disk
    ordered = lru_cache(partial(in_order, features.values, order, disk))
    if kept is None:
        encoder, key = Encoder.fit(how, features, train_rows, ordered()), ""
    else:
        encoder = kept.get(how, features, train_rows, ordered)
        made_of = hashlib.blake2b(f"{VERSION} {kept.digest}".encode(), digest_size=32)
        made_of.update(order.data)
        key = made_of.hexdigest()
    store, names = RowStore(None if kept is None else kept.rows, disk), encoder.named(features.names)
    if (found := store.opened(key, names)) is not None:
        return found
    place = features.place
    rows = replace(features, values=ordered(), ids=None, place=place and (lambda row: place(int(order[row]))))
    return store.written(key, encoder.blocks(rows), (len(order), encoder.width), names, order)


def _columns(
    config: DataConfig,
    encoder: Encoder,
    features: Features,
    of: tuple[int, str],
    train_rows: Tensor | None = None,
    *,
    typed: bool,
) -> Columns:
    if typed and config.noise is not None:
        raise ConfigError(
            "`noise` is of encoded values, and the protocol learns from the table before it is encoded",
            hint="leave `noise` out",
        )
    if typed:
        if encoder.codes and "refuse" in (encoder.config.missing, encoder.config.unseen):
            encoder.apply(features)  # for what it refuses
        table = typed_table(config, features)
        return Columns(table.values, Scaler.none(), table)
    coded = (encoder.apply(features), Scaler.none()) if encoder.codes else (features.values, encoder.scaler)
    names = encoder.named(features.names)
    if isinstance(config, TableColumnsConfig) and config.contents:
        names = [(name, config.column_of(column)) for name, column in names]
    columns = Columns(*coded, names=names)
    if config.noise is None:
        return columns
    noisy = noised(config.noise, columns[torch.arange(len(features.values))], *of, train_rows)
    return Columns(noisy, Scaler.none(), names=columns.names)


def typed_table(config: DataConfig, features: Features) -> Features:
    """Input of `typed` protocols: a column of words is one column."""
    return adult.typed(features) if isinstance(config, AdultData) else features


def encoding(config: DataConfig) -> EncodeConfig:
    """Encoding settings of a source: only tables configure more than the scale."""
    if isinstance(config, TableColumnsConfig):
        scale = "none" if config.tower is not None and config.tower.tune else config.scale
        return EncodeConfig(scale, config.missing, config.unseen)
    return EncodeConfig(config.scale)


def load_labels(
    config: LabelConfig, base: Path, task: Task = "classification", cache: TableCache | None = None
) -> LabelColumn:
    """Reads the server's labels; no feature is read. Arguments as of `load_features`.

    Raises:
        DataError: the source is not found, or a label is missing or invalid.
        ConfigError: the source does not have the labels that the task needs.
    """
    with _reading(config):
        if config.source in SOURCES.entries:
            with SOURCES.blamed(config.source, DataError):
                found = _load_labels(config, base, task)
                return check_label_column(config.source, found, numbers=task == "regression")
        return _load_labels(config, base, task, cache)


def _load_labels(config: LabelConfig, base: Path, task: Task, cache: TableCache | None = None) -> LabelColumn:
    if isinstance(config, TableLabelsConfig):
        from colonnade.common.data.tables import read_classes, read_numbers  # noqa: PLC0415  # pyarrow takes 0.2 s

        read = read_classes if task == "classification" else read_numbers
        return read(config, base, cache)
    return _classes(config, base) if task == "classification" else _numbers(config, base)


def _classes(config: LabelConfig, base: Path) -> LabelColumn:
    match config:
        case SklearnLabels():
            bundled = Bundled(config.name)
            return LabelColumn(bundled.labels(), bundled.classes)
        case IdxLabels():
            folder = find(config.folder, base, lambda path: holds(path, "labels-idx1"), "labels in idx format")
            values, official_test = read_labels(folder)
            count = int(values.max()) + 1
            known = KNOWN[config.folder].classes if config.folder in KNOWN else ()
            classes = known if len(known) == count else tuple(str(number) for number in range(count))
            return LabelColumn(values, classes, official_test)
        case CifarLabels():
            values, official_test = cifar.read_labels(_folder(config, base))
            return LabelColumn(values, KNOWN["cifar10"].classes, official_test)
        case AdultLabels():
            values, official_test = adult.read_labels(_folder(config, base))
            return LabelColumn(values, adult.CLASSES, official_test)
        case MatLabels() | TensorLabels():
            read = read_view_classes if isinstance(config, MatLabels) else read_tensor_labels
            return read(find_file(config.path, base))
        case _:
            return cast(LabelColumn, cast(LabelsConfig, config).read(base))


def _numbers(config: LabelConfig, base: Path) -> LabelColumn:
    match config:
        case SklearnLabels():
            return LabelColumn(Bundled(config.name).targets(), ())
        case TensorLabels():
            return read_tensor_targets(find_file(config.path, base))
    read_numbers: Callable[[Path], LabelColumn] | None = getattr(config, "read_numbers", None)
    if read_numbers is None:
        raise ConfigError(
            f"server.labels.source = {config.source!r} has classes and no numbers to be predicted",
            hint="take sklearn (diabetes), a table or safetensors, or set federation.task to classification",
        )
    return read_numbers(base)


def _folder(config: CifarSource | AdultSource, base: Path) -> Path:
    """The folder of a known set. Raises DataError: it is not found."""
    if isinstance(config, CifarSource):
        return find(config.folder, base, cifar.holds, "batches of CIFAR-10")
    return find(config.folder, base, adult.holds, "adult.data and adult.test")
