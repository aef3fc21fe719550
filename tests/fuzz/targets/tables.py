"""Readers of a member's tables: our code around pyarrow, numpy and safetensors, with the bytes of a file mutated."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.torch
import torch
from pydantic import TypeAdapter

from colonnade.common.config.data.columns import PartyIndex
from colonnade.common.config.data.sources import DataConfig, LabelConfig
from colonnade.common.data import table_cache
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.formats.tensors import columns_bytes, labels_bytes, read_tensor_labels, read_tensor_targets
from colonnade.common.data.labels import LabelColumn
from colonnade.common.data.sources import load_features, load_labels
from colonnade.common.errors import ColonnadeError
from colonnade.launcher.prediction_files import PredictionIds
from tests.fuzz.engine import Broken, Case, Target, unguarded
from tests.fuzz.mutations.plain import mutate_bytes
from tests.fuzz.mutations.trees import mutate_safetensors
from tests.fuzz.targets.place import Place

_CSV = b'who,age,town,outcome\n7,30.5,Ulm,yes\n3,,  Bonn,no\n12,-1.0,,yes\n9,4e1,"Bad, ""Ems""",no\n'
_DATA, _LABELS = TypeAdapter(DataConfig), TypeAdapter(LabelConfig)
_CELLS = (
    b"1e999", b"nan", b"NA", b"-", b"1_000", b"1.000,5", b"2026-01-01", b"\xff\xfe", b"\x00", b'"', b'""',
    b"\r\n", b"\n\n",
    b"0x10", b"1" * 400, b"\xef\xbb\xbf", b",,,,", b";", b"\t", b"=1+1", b"\xe2\x80\xae", b"true", b"\x1b[2J",
    b"sep=;\n",
)  # fmt: skip


def _mutate_csv(rng: Random, data: bytes, other: bytes) -> bytes:
    """Cells, lines and bytes in the place of others."""
    if rng.random() < 0.4:
        return mutate_bytes(rng, data, other)
    lines = data.split(b"\n")
    at = int(rng.random() * len(lines))
    cells = lines[at].split(b",")
    where, cell = int(rng.random() * len(cells)), _CELLS[int(rng.random() * len(_CELLS))]
    if rng.random() < 0.7:
        cells[where] = cell if rng.random() < 0.6 else mutate_bytes(rng, cells[where], cell)
        lines[at] = b",".join(cells)
    else:
        lines.insert(at, lines[int(rng.random() * len(lines))])
    return b"\n".join(lines)


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _idx(magic: int, *sizes: int, content: bytes) -> bytes:
    return magic.to_bytes(4) + b"".join(size.to_bytes(4) for size in sizes) + content


_IMAGES, _NUMBERS = _idx(0x803, 2, 2, 3, content=bytes(range(12))), _idx(0x801, 2, content=b"\0\1")
_ARRAYS = (
    np.arange(12.0).reshape(4, 3),
    np.arange(4),
    np.array([("a", 1.5), ("b", 2.5)], dtype=[("town", "U4"), ("age", "f8")]),
    np.arange(6, dtype=">i2").reshape(3, 2),
)


def _tables() -> list[Case]:
    found = [Case("csv", _CSV), Case("csv", _CSV.replace(b",", b";")), Case("labels.csv", _CSV), Case("ids", _CSV)]
    found += [Case("ids", b"id\n1\n2\nabc\n"), *(Case("npy", _npy(array)) for array in _ARRAYS)]
    return [*found, Case("idx", _IMAGES), Case("idx labels", _NUMBERS)]


@cache
def _section(kind: str) -> Any:
    match kind:
        case "csv":
            return _DATA.validate_python({"source": "csv", "path": "t", "key": "who", "missing": "mean"})
        case "labels.csv":
            return _LABELS.validate_python({"source": "csv", "path": "t", "key": "who", "label": "outcome"})
        case "npy":
            return _DATA.validate_python({"source": "npy", "path": "t"})
        case "idx":
            return _DATA.validate_python({"source": "idx", "folder": "."})
        case "idx labels":
            return _LABELS.validate_python({"source": "idx", "folder": "."})
        case _:
            raise KeyError(kind)


def _read_tables() -> Callable[[str, bytes], object]:
    place = Place("tables")

    def read(variant: str, data: bytes) -> object:
        files = _files(variant, data)
        folder = place.hold(files)
        found = _loaded(variant, folder)
        if isinstance(found, Features) and found.ids is not None and len(found.ids) != len(found.values):
            raise Broken("keys that are not one a row")
        place.check(files)
        return found

    return read


def _files(variant: str, data: bytes) -> Mapping[str, bytes]:
    if variant == "idx":
        return {"train-images-idx3-ubyte": data, "t10k-images-idx3-ubyte": _IMAGES}
    if variant == "idx labels":
        return {"train-labels-idx1-ubyte": data, "t10k-labels-idx1-ubyte": _NUMBERS}
    return {"t": data}


def _loaded(variant: str, folder: Path) -> object:
    if variant == "ids":
        return list(PredictionIds(folder / "t").ids())
    section = _section(variant)
    if "labels" in variant:
        return load_labels(section, folder)
    return load_features(section, PartyIndex(0, 1), folder)


# Files of tensors, and copies of tables.

_FEATURES = Features(torch.rand(4, 2, generator=torch.Generator().manual_seed(1)), ("age", "size"), 1)
_CLASSES = LabelColumn(torch.tensor([0, 1, 1, 0]), ("no", "yes"), 1)
_KEY = "k" * 64


def _tensors() -> list[Case]:
    values = safetensors.torch.save({"values": torch.rand(4, 2)}, {"official_test": "1"})
    columns = [
        Case("columns", columns_bytes(_FEATURES)),
        Case("labels", labels_bytes(_CLASSES)),
        Case("targets", values),
    ]
    fields = (TypedColumn("age", None), TypedColumn("town", ("Ulm", "Bonn")))
    typed = Features(torch.zeros(3, 2, dtype=torch.float64), ("age", "town"), 0, None, fields)
    for name, form, value in (
        ("copy", table_cache.FeatureForm, typed),
        ("copied labels", table_cache.LabelForm, _CLASSES),
    ):
        tensors, about = form.taken_apart(value)  # type: ignore[attr-defined]
        said = json.dumps(about)
        crc = table_cache.checksum(said, tensors)
        columns.append(Case(name, safetensors.torch.save(tensors, {"key": _KEY, "about": said, "crc": crc})))
    return columns


def _read_tensors() -> Callable[[str, bytes], object]:
    place = Place("tensor-files")

    def read(variant: str, data: bytes) -> object:
        path = place.hold({"t": data}) / "t"
        if variant == "labels":
            found: Any = read_tensor_labels(path)
            if found.values.min() < 0 or found.values.max() >= len(found.classes):
                raise Broken("a label that is no class")
            return found
        if variant == "targets":
            return read_tensor_targets(path)
        if variant == "columns":
            section = _DATA.validate_python({"source": "safetensors", "path": "t", "split": "all"})
            return load_features(section, PartyIndex(0, 1), path.parent)
        return _copied(variant, path, _mended(data))

    def _copied(variant: str, path: Path, data: bytes) -> object:
        place.hold({"t": data})
        with unguarded():
            path.parent.chmod(0o700)
        form: Any = table_cache.FeatureForm if variant == "copy" else table_cache.LabelForm
        try:
            return form.restore(*table_cache.read_copy(path, _KEY))
        except table_cache.DAMAGES:
            return None  # made again

    return read


def _mended(data: bytes) -> bytes:
    try:
        size = int.from_bytes(data[:8], "little")
        about = json.loads(data[8 : 8 + size])["__metadata__"]
        tensors = safetensors.torch.load(data)
        return safetensors.torch.save(tensors, {**about, "crc": table_cache.checksum(about["about"], tensors)})
    except Exception:  # noqa: BLE001
        return data


_small = partial(Target, errors=(ColonnadeError,))

TARGETS = (
    _small("tables", _read_tables, _tables, mutate=_mutate_csv, count=200),
    _small("tensor-files", _read_tensors, _tensors, mutate=mutate_safetensors, count=200),
)
