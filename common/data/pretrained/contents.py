"""Columns of texts or images: their cells as the tower of the member's model reads them.

A frozen tower turns each cell into its embedding, one column of numbers per entry. Cells are embedded independently,
and embeddings are kept on disk under the tower's and the cell's content. For a trained tower a cell becomes its pixels
or its token numbers.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from colonnade.common.config.data.tables import TableColumnsConfig
from colonnade.common.data.columns.features import Doubt, Features, TypedColumn
from colonnade.common.data.keys import KeyColumn
from colonnade.common.data.pretrained.opening import open_tower
from colonnade.common.data.pretrained.tower import PretrainedTower, Unreadable, frozen
from colonnade.common.data.table import Beside, Table, Words, read_words, refuse_twice
from colonnade.common.data.table_cache import DAMAGES, read_copy, write_copy
from colonnade.common.errors import ConfigError, DataError
from colonnade.common.run.activity import activity

FOLDER = ".embeddings"  # beside the configuration: embeddings of frozen towers

LONGEST = 1 << 20  # maximum bytes of a text

_TOGETHER = 256  # embeddings in a file


@dataclass(frozen=True)
class _ContentColumn:
    """A column of texts, or of paths of images below `folder`."""

    name: str
    words: Words
    table: Table
    folder: Path | None

    def content(self, code: int) -> bytes:
        """The content of a cell. Raises DataError if the image does not exist or lies outside the folder."""
        word = self.words.words[code]
        if self.folder is None:
            return word.encode()
        path = (self.folder / word).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise self.wrong(
                code, "leads out of the table's folder", "put images beside the table, or in folders below"
            )
        try:
            return path.read_bytes()
        except OSError as failed:
            hint = f"paths are relative to {self.folder}"
            raise self.wrong(code, f"cannot be read: {failed.strerror or 'no such file'}", hint) from None

    def wrong(self, code: int, what: str, hint: str = "") -> DataError:
        row = int((self.words.codes == code).argmax())
        word = "the text" if self.folder is None else repr(self.words.words[code])
        where = f"{self.table.place(row)}, column {self.name!r}"
        return DataError(f"{where}: {word} {what}", hint=hint or "mend it, or leave the row out")


def with_contents(
    config: TableColumnsConfig,
    table: Table,
    names: Sequence[str],
    others: Features | None,
    folder: Path,
    base: Path,
    *,
    beside: Beside,
) -> Features:
    """The columns of a table with those of texts or images among them.

    Args:
        names: the columns of texts or images.
        others: the other columns, if there are any.
        folder: base of image paths.
        base: the configuration's folder.
        beside: what is read in the pass over the other columns, or over the first of these if there are none: all
            these but that one.

    Raises:
        ConfigError: the tower's weights cannot be used, or it takes no other columns.
        DataError: a text or an image cannot be read; the message names file, line and column.
    """
    assert config.tower is not None  # or the configuration is refused
    if config.tower.tune and others is not None:
        raise ConfigError(
            f"model.tune = true: the tower takes {names[0]!r} alone, and the table has {others.names[0]!r} beside it",
            hint=f"say `columns: [{names[0]}]`; or leave the tower frozen, which takes both",
        )
    gaps = config.missing != "refuse" and not config.tower.tune
    columns, keys = list[_ContentColumn](), others.ids if others is not None else None
    for name in names:
        read = partial(read_words, column=name, gaps=gaps, longest=LONGEST, fill_in=_FILL_IN)
        if others is None and not columns:
            words, keys = read(table, key=config.key, repeats=config.repeated != "refuse", beside=beside)
        else:
            words, _ = read(beside, key=None)
        columns.append(_ContentColumn(name, words, table, folder if config.contents[name] == "image" else None))
    rows = {len(column.words.codes) for column in columns} | ({len(others.values)} if others is not None else set())
    if len(rows) > 1:
        raise DataError(f"{table} changes while it is read", hint="read a copy of it")
    tower = open_tower(config.tower, base)
    if config.tower.tune:
        return _read_alone(tower, columns[0], keys)
    kept = KeptEmbeddings(base / FOLDER if config.tower.cache else None, tower)
    values = [_embedded(tower, kept, column) for column in columns]
    new = [TypedColumn(f"{column.name}[{place}]", of=column.name) for column in columns for place in range(tower.width)]
    made = [field.name for field in new]
    before = () if others is None else others.names
    refuse_twice(str(table), [*before, *made])
    fields = (*(() if others is None else others.fields), *new)
    doubts = (*(() if others is None else others.doubts), *kept.doubts)
    joined = torch.cat([*([] if others is None else [others.values]), *values], 1)
    return Features(joined, (*before, *made), 0, keys, fields, doubts)


_FILL_IN = "fill it in, leave the row out, or with a frozen tower say `missing: mean` of the data"


def _read_alone(tower: PretrainedTower, column: _ContentColumn, keys: KeyColumn | Sequence[str] | None) -> Features:
    """Pixels or tokens of every row, for a model that is trained on them."""
    count = len(column.words.words)
    table = torch.full((count, *tower.shape), -1.0) if len(tower.shape) == 1 else torch.empty(
        (count, *tower.shape), dtype=torch.uint8
    )  # fmt: skip
    with activity(f"reading column {column.name!r}", count, "cells") as doing:
        for code in range(count):
            made = _made(tower, column, code, column.content(code))
            table[code, : len(made)] = made
            doing.step()
    names = tuple(f"{column.name}[{place}]" for place in range(table[0].numel()))
    return Features(table[torch.from_numpy(column.words.codes)], names, 0, keys)


def _made(tower: PretrainedTower, column: _ContentColumn, code: int, content: bytes) -> Tensor:
    try:
        return tower.read(content)
    except Unreadable as wrong:
        raise column.wrong(code, str(wrong)) from None


def _embedded(tower: PretrainedTower, kept: KeptEmbeddings, column: _ContentColumn) -> Tensor:
    """Embeddings of a column's cells, float64 (rows, width); NaN where a cell is missing."""
    count, module = len(column.words.words), frozen(tower.module)
    table = torch.full((count + 1, tower.width), torch.nan)  # the last of missing cells, at -1
    with activity(f"embedding column {column.name!r}", count, "cells") as doing, torch.inference_mode():
        for code in range(count):
            content = column.content(code)
            cell = hashlib.sha256(content).digest()
            if (found := kept.get(cell)) is not None:
                doing.kept += 1
            else:
                found = module(_made(tower, column, code, content).unsqueeze(0)).squeeze(0)
                if found.shape != (tower.width,) or not bool(found.isfinite().all()):
                    said = f"gets an embedding of shape {tuple(found.shape)}, or one that is not finite"
                    raise column.wrong(code, said, "are these the tower's weights?")
                kept.add(cell, found)
            table[code] = found
            doing.step()
        kept.write()
    return table.double()[torch.from_numpy(column.words.codes)]


@dataclass
class KeptEmbeddings:
    """Embeddings of a tower on the disk, by the SHA-256 of a cell's content.

    Only the owner can read them. A file that is torn, altered, or another user's is not read.

    Args:
        folder: None keeps them for as long as the object lives.
    """

    folder: Path | None
    tower: PretrainedTower
    doubts: tuple[Doubt, ...] = ()
    _found: dict[bytes, Tensor] = field(default_factory=dict, init=False)
    _new: dict[bytes, Tensor] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for path in self.folder.glob(f"{self.tower.digest}-*.safetensors") if self.folder is not None else ():
            with contextlib.suppress(*DAMAGES):
                self._found |= _cells(read_copy(path, self.tower.digest)[0], self.tower.width)

    def get(self, cell: bytes) -> Tensor | None:
        return self._found.get(cell)

    def add(self, cell: bytes, embedding: Tensor) -> None:
        self._found[cell] = self._new[cell] = embedding.clone()
        if len(self._new) == _TOGETHER:
            self.write()

    def write(self) -> None:
        """Writes additions. A failing disk is a warning: the next start computes them again."""
        new, self._new = self._new, {}
        if self.folder is None or not new:
            return
        cells = torch.frombuffer(bytearray(b"".join(new)), dtype=torch.uint8)
        name = f"{self.tower.digest}-{hashlib.sha256(b''.join(new)).hexdigest()[:16]}.safetensors"
        try:
            values = {"values": torch.stack([*new.values()]), "keys": cells}
            write_copy(self.folder / name, self.tower.digest, values, {})
        except OSError as failed:
            what = f"are not kept in {self.folder}: {failed.strerror or failed}"
            self.doubts = (Doubt("embeddings", what, "the next start computes them again"),)


def _cells(tensors: Mapping[str, Tensor], width: int) -> dict[bytes, Tensor]:
    values, cells = tensors["values"], tensors["keys"].reshape(-1, hashlib.sha256().digest_size)
    if values.shape != (len(cells), width) or values.dtype != torch.float32:
        raise ValueError("embeddings of another form")
    return dict(zip(map(bytes, cells.numpy()), values, strict=True))
