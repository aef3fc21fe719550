"""Copies of tables as they were read, so that the processes of a run and later commands need not parse them again.

A copy is in its member's folder of the run, `tables/`, which only its owner can enter. It is valid for the table's
content, the section's settings and the version of Colonnade that it was made with. It holds numbers, words and keys,
nothing executable. A copy that is torn, altered or another user's is made again.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from colonnade.common.data.columns.features import Doubt, Features, TypedColumn
from colonnade.common.data.keys import KeyColumn
from colonnade.common.data.labels import LabelColumn
from colonnade.common.errors import disk_faults
from colonnade.common.run.files import state_of
from colonnade.common.run.json_text import parse_json
from colonnade.common.run.run_folder import MemberFolder
from colonnade.common.version import VERSION

_FORMAT = 1
_VALUES, _WEIGHTS, _TEXT, _ENDS = "values", "weights", "keys", "ends of keys"


@runtime_checkable
class OnDisk(Protocol):
    """A table in files that takes long to read."""

    @property
    def files(self) -> tuple[Path, ...]:
        pass


@dataclass(frozen=True)
class _Copy:
    path: Path
    key: str
    tensors: Mapping[str, Tensor]
    about: Mapping[str, Any]


class TableCache:
    """A member's copies in its folder of a run; `writes` is True if `keep` will be called."""

    def __init__(self, folder: Path, *, writes: bool = False) -> None:
        self._folder, self._writes = MemberFolder(folder).tables, writes
        self._new: list[_Copy] = []

    def features(self, table: OnDisk, settings: str, read: Callable[[], Features]) -> Features:
        """The columns, from their copy if it is valid for these settings, else from the table. Raises as `read`."""
        found: Features = self._get("columns", table, settings, FeatureForm, read)
        return found

    def labels(self, table: OnDisk, settings: str, read: Callable[[], LabelColumn]) -> LabelColumn:
        found: LabelColumn = self._get("labels", table, settings, LabelForm, read)
        return found

    def folder(self) -> Path:
        """The folder of copies, created if missing. Raises EnvironmentFault."""
        with disk_faults(f"{self._folder} cannot be made", "allow it"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._folder

    def keep(self) -> None:
        """Writes copies of the tables read since the last call. A failing disk is ignored."""
        while self._new:
            copy = self._new.pop()
            with contextlib.suppress(OSError):
                write_copy(copy.path, copy.key, copy.tensors, copy.about)

    def _get(self, slot: str, table: OnDisk, settings: str, form: Any, read: Callable[[], Any]) -> Any:
        path = self._folder / f"{slot}.safetensors"
        if not (self._writes or path.exists()):
            return read()
        before = _states(table.files)
        key = _key(table.files, settings)
        with contextlib.suppress(*DAMAGES):
            return form.restore(*read_copy(path, key))
        found = read()
        if self._writes and before == _states(table.files):  # the digest is of what was read
            self._new.append(_Copy(path, key, *form.taken_apart(found)))
        return found


DAMAGES = (OSError, ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a copy that is torn, altered or of another form."""


class FeatureForm:
    @staticmethod
    def taken_apart(features: Features) -> tuple[dict[str, Tensor], dict[str, Any]]:
        about = {
            "names": features.names,
            "fields": [(field.name, field.words) for field in features.fields],
            "doubts": _taken_apart(features.doubts),
        }
        return {_VALUES: features.values, **_key_tensors(features.ids)}, about

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> Features:
        fields = tuple(TypedColumn(name, None if words is None else tuple(words)) for name, words in about["fields"])
        doubts = tuple(Doubt(*doubt) for doubt in about["doubts"])
        return Features(tensors[_VALUES], tuple(about["names"]), 0, _keys(tensors), fields, doubts)


class LabelForm:
    @staticmethod
    def taken_apart(labels: LabelColumn) -> tuple[dict[str, Tensor], dict[str, Any]]:
        counts = {"dropped": labels.dropped, "repeated": labels.repeated}
        about = {"classes": labels.classes, **counts, "doubts": _taken_apart(labels.doubts)}
        weights = {} if labels.weights is None else {_WEIGHTS: labels.weights.contiguous()}
        return {_VALUES: labels.values.contiguous(), **weights, **_key_tensors(labels.ids)}, about

    @staticmethod
    def restore(tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> LabelColumn:
        doubts = tuple(Doubt(*doubt) for doubt in about["doubts"])
        classes, dropped, weights = tuple(about["classes"]), about["dropped"], tensors.get(_WEIGHTS)
        return LabelColumn(
            tensors[_VALUES], classes, 0, _keys(tensors), dropped, doubts, weights, repeated=about["repeated"]
        )


def _taken_apart(doubts: Sequence[Doubt]) -> list[tuple[str, str, str]]:
    return [(doubt.column, doubt.what, doubt.hint) for doubt in doubts]


def _key_tensors(keys: Sequence[str] | None) -> dict[str, Tensor]:
    if keys is None:
        return {}
    assert isinstance(keys, KeyColumn)  # as tables give them
    ends, text = keys.parts
    return {_ENDS: torch.from_numpy(ends), _TEXT: torch.from_numpy(text)}


def _keys(tensors: Mapping[str, Tensor]) -> KeyColumn | None:
    if _ENDS not in tensors:
        return None
    return KeyColumn.of_parts(tensors[_ENDS].numpy(), tensors[_TEXT].numpy())


def _states(files: Sequence[Path]) -> list[tuple[int, ...]]:
    return [state_of(path.stat()) for path in files]


def _key(files: Sequence[Path], settings: str) -> str:
    """Digest of the files' content, the settings and the version. Modification times can be set, so they are not
    used.
    """
    parts = [str(_FORMAT), VERSION, settings]
    for path in files:
        with path.open("rb") as file:
            parts.append(hashlib.file_digest(file, "blake2b").hexdigest())
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).hexdigest()


def checksum(about: str, tensors: Mapping[str, Tensor]) -> str:
    found = zlib.crc32(about.encode())
    for name in (_VALUES, _WEIGHTS, _ENDS, _TEXT):
        if name in tensors:
            found = zlib.crc32(tensors[name].numpy().reshape(-1).view(np.uint8).data, found)
    return f"{found:08x}"


def read_copy(path: Path, key: str) -> tuple[Mapping[str, Tensor], Mapping[str, Any]]:
    """A copy, mapped into memory; changes to its tensors do not reach the file. Raises one of `DAMAGES`."""
    if not _ours_alone(path.parent, stat.S_ISDIR) or not _ours_alone(path, stat.S_ISREG):
        raise ValueError(f"{path} is not ours alone")
    try:
        with safe_open(path, framework="pt") as file:
            said = file.metadata() or {}
            if said["key"] != key:
                raise ValueError(f"{path} is of another table")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # no mapping
    except SafetensorError as torn:
        raise ValueError(f"{path} is torn") from torn
    if said["crc"] != checksum(said["about"], tensors):
        raise ValueError(f"{path} was altered")
    return tensors, parse_json(said["about"])


def _ours_alone(place: Path, kind: Callable[[int], bool]) -> bool:
    found = place.lstat()
    return kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def write_copy(path: Path, key: str, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> None:
    """Writes a copy, in a folder that only we can enter, which is made. Raises OSError.

    Args:
        tensors: under the names that `checksum` covers.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not _ours_alone(path.parent, stat.S_ISDIR):
        raise PermissionError(errno.EPERM, "the folder is not ours alone")
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    said = json.dumps(about)
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        save_file(dict(tensors), partial, {"key": key, "about": said, "crc": checksum(said, tensors)})
        partial.chmod(0o600)
        partial.replace(path)  # not forced to the disk: a torn copy is made again
    except (OSError, SafetensorError) as failed:
        partial.unlink(missing_ok=True)
        raise OSError(*failed.args) from failed
