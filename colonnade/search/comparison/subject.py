"""The rows of a comparison: read, aligned, split and encoded once, into files that every run shares."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from colonnade.common.config.data.sources import DataConfig
from colonnade.common.config.members import Config
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.data.columns.features import Features
from colonnade.common.data.formats.arrow_table import of_features, write_arrow
from colonnade.common.data.formats.tensors import columns_bytes, labels_bytes
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.rows import Partition, generator, sampled
from colonnade.common.data.sources import load_features, load_labels, prepare, refuse_own_labels, typed_table
from colonnade.common.errors import InputError
from colonnade.common.parsing.error_messages import whose
from colonnade.common.run.files import write_kept
from colonnade.search.folds import HeldTables, align_once, parts_bytes, read_aligned, table_digests
from colonnade.server.training.classes import UNEQUAL, ClassBalance
from colonnade.server.training.context import check_labels
from colonnade.server.training.fusion.active import active_features
from colonnade.simulation.contexts import refuse_other_rows


@dataclass(frozen=True)
class Subject:
    """Data of a comparison, in files of prepared values.

    Args:
        digest: hash of rows, columns, labels and parts, 16 hexadecimal digits.
        shapes: row shapes of every member with columns, the server's first if it has any.
        types: column types of tables, by member and name.
        classes: training rows per class; empty in a regression.
        targets: numbers to predict per row; 0 in a classification.
        positive: the class that AUC, average precision, KS, gain and lift refer to; "" unless there are two.
    """

    folder: Path
    digest: str
    shapes: Mapping[str, tuple[int, ...]]
    types: Mapping[str, Mapping[str, str]]
    train: int
    validation: int
    test: int
    classes: tuple[int, ...]
    targets: int
    positive: str = ""

    @property
    def regression(self) -> bool:
        return bool(self.targets)

    @property
    def metric(self) -> tuple[str, str]:
        """The metric that fits the training labels, without the rows' prefix, and the reason."""
        if self.regression:
            return "r2", "the labels are numbers"
        balance, present = ClassBalance(self.classes), [count for count in self.classes if count]
        how = "more than" if balance.unequal else "at most"
        return balance.measure, (
            f"the commonest class has {balance.share:.1%} of the training rows, {how} {UNEQUAL:g} times an equal "
            f"share; classes have {min(present):,} to {max(present):,} each"
        )

    def data(self, member: str, *, typed: bool) -> dict[str, Any]:
        """The section `data` of a member's prepared columns, or of its table, for protocols that are `typed`."""
        path = self.folder / _table_name(self._place(member)) if typed else self.columns(member)
        if typed and self.types[member]:
            return {"source": "arrow", "path": str(path), "types": dict(self.types[member])}
        return {"source": "safetensors", "path": str(path), "split": "all", "scale": "none"}

    @property
    def labels(self) -> dict[str, Any]:
        return {"source": "safetensors", "path": str(self.label_file)}

    def columns(self, member: str) -> Path:
        return self.folder / _name(self._place(member))

    def _place(self, member: str) -> int:
        return list(self.shapes).index(member)

    @property
    def label_file(self) -> Path:
        return self.folder / "labels.safetensors"

    @property
    def parts(self) -> Path:
        return self.folder / "parts.safetensors"

    def plain(self) -> dict[str, Any]:
        return {
            "digest": self.digest, "train": self.train, "validation": self.validation, "test": self.test,
            "members": {name: list(shape) for name, shape in self.shapes.items()},
            "classes": list(self.classes), "targets": self.targets, "positive": self.positive,
        }  # fmt: skip


def read_subject(config: Config, base: Path, folder: Path, rows: int | None) -> Subject:
    """Reads all data of a configuration, and writes the files that runs read.

    Values are encoded and scaled on the training rows, as in a run. Existing files stay.

    Args:
        base: folder that the configuration's paths are relative to.
        folder: parent of the files' folder; other data get another one.
        rows: maximum number of training and validation rows together, and of test rows; None for all.
    """
    assert config.server is not None  # refused earlier
    federation = config.federation.model_copy(update={"privacy": None})
    tables = HeldTables(config, base, {} if federation.align == "none" else table_digests(config, base))
    kept = align_once(tables, folder / "aligned.safetensors")
    aligned = {} if kept is None else read_aligned(kept)
    with whose(SERVER):
        whole = load_labels(config.server.labels, base, federation.task)
    check_labels(whole, federation)
    labels = sampled(whole, aligned.get(SERVER))
    parts = limited(Schedule(federation, len(labels.values), labels.official_test).partition, rows, federation.seed)
    if not len(parts.test):
        raise InputError(
            "there are no test rows: federation.rows.test is 0", hint="set federation.rows.test, for example to 0.2"
        )
    taken = torch.cat([parts.train, parts.validation, parts.test])
    values, typed = dict[str, Tensor](), dict[str, Features]()

    def add(name: str, data: DataConfig, features: Features) -> None:
        features = sampled(features, aligned.get(name))
        refuse_other_rows(name, len(features.values), len(labels.values))
        values[name] = prepare(data, features, parts.train, federation.seed, name)[taken]
        typed[name] = replace(typed_table(data, features).rows(taken), ids=None)

    if (own := config.server.active) is not None:
        rows, ids = len(whole.values), whole.ids
        add(SERVER, own.data, active_features(federation, config.server, own, base, rows, ids=ids))
    for name, party in config.parties.items():
        with whose(name):
            index = federation.party_index(name)
            refuse_own_labels(config.server.labels, party.data, index, f"parties.{name}.data", base)
            add(name, party.data, load_features(party.data, federation.party_index(name), base))
    if aligned:
        tables.check()
    return _written(folder, values, typed, replace(labels.rows(taken), ids=None), parts)


def limited(parts: Partition, rows: int | None, seed: int) -> Partition:
    """Limits training and validation rows together, and test rows, to `rows` each; None for all.

    The share of validation rows stays about the same.
    """
    if rows is None:
        return parts
    both = len(parts.train) + len(parts.validation)
    validation = parts.validation
    train = parts.train
    if both > rows:
        count = max(1, round(rows * len(validation) / both))
        validation, train = _drawn(validation, count, seed, "validation"), train[: rows - count]
    return Partition(train, validation, _drawn(parts.test, rows, seed, "test"))


def _drawn(rows: Tensor, count: int, seed: int, part: str) -> Tensor:
    if len(rows) <= count:
        return rows
    order = torch.randperm(len(rows), generator=generator("comparison", part, seed))
    return rows[order[:count]].sort().values


def _name(place: int) -> str:
    return f"columns-{place}.safetensors"


def _table_name(place: int) -> str:
    return f"table-{place}"


def _table_bytes(table: Features) -> bytes:
    if not table.fields:
        return columns_bytes(table)
    with io.BytesIO() as out:
        write_arrow(of_features(table), out)
        return out.getvalue()


def _written(
    folder: Path, values: Mapping[str, Tensor], tables: Mapping[str, Features], labels: LabelColumn, parts: Partition
) -> Subject:
    sizes = (len(parts.train), len(parts.validation), len(parts.test))
    ends = torch.split(torch.arange(sum(sizes)), list(sizes))
    digest = hashlib.sha256(repr((sizes, labels.classes, list(values))).encode())
    files = {"labels.safetensors": labels_bytes(labels), "parts.safetensors": parts_bytes(Partition(*ends))}
    for place, columns in enumerate(values.values()):
        files[_name(place)] = columns_bytes(Features(columns, ()))
    for place, table in enumerate(tables.values()):
        files[_table_name(place)] = _table_bytes(table)
        digest.update(table.fingerprint.encode())
    for tensor in (labels.values, *values.values()):  # the order of a file's header is arbitrary
        digest.update(repr((tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.contiguous().numpy().data)
    name = digest.hexdigest()[:16]
    for file, content in files.items():
        if not (folder / name / file).exists():
            write_kept(folder / name / file, content, 0o600, in_new=True)
    count = len(labels.classes)
    classes = tuple(torch.bincount(labels.values[: sizes[0]], minlength=count).tolist()) if count else ()
    shapes = {member: tuple(columns.shape[1:]) for member, columns in values.items()}
    targets = 0 if count else labels.values.shape[1]
    positive = labels.classes[1] if count == 2 else ""
    types = {member: {field.name: field.kind for field in table.fields} for member, table in tables.items()}
    return Subject(folder / name, name, shapes, types, *sizes, classes, targets, positive)
