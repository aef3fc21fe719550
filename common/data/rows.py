"""Partition of rows into training, validation and test, and the batch of every round.

The server and every party derive both from the federation's seed, so no index is sent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from threading import Lock
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from colonnade.common.config.run_options import BlockShuffle, RowsConfig, Shuffle
from colonnade.common.errors import ConfigError, InputError

_TEST_FRACTION = 0.2
_MOST_KEPT, _BYTES_KEPT = 64, 1 << 26  # permutations, of which two are kept whatever their size


@dataclass(frozen=True)
class Partition:
    """Row numbers, int32, disjoint, together all rows unless `rows.train` takes fewer.

    `train` is in an order drawn once from the seed, since many files are sorted by class; the others ascend.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def partition(rows: int, official_test: int, config: RowsConfig, seed: int) -> Partition:
    """Partitions rows 0 .. rows-1 into training, validation and test: MNIST gives 54000, 6000 and 10000.

    Args:
        official_test: number of last rows that are the source's own test part; 0 if it has none.

    Raises ConfigError if nothing remains for training, or there is no official part.
    """
    if config.test == "official" and not official_test:
        raise ConfigError(
            "`test: official`, but the source has no test part of its own",
            hint="give `test` a number of rows or a fraction",
        )
    official = config.test == "official" or (config.test is None and official_test > 0)
    pool = rows - official_test if official else rows
    order = torch.randperm(pool, dtype=torch.int32, generator=generator("partition", seed))
    drawn = 0 if official else _size(_TEST_FRACTION if config.test is None else config.test, pool)
    kept = drawn + _size(config.validation, pool - drawn)
    if kept >= pool:
        raise ConfigError(
            f"of {rows} rows none remains for training: {rows - pool + drawn} test, {kept - drawn} validate",
            hint="lower `rows.test` or `rows.validation`",
        )
    test = torch.arange(pool, rows, dtype=torch.int32) if official else order[:drawn].sort().values
    return Partition(order[kept:][: config.train], order[drawn:kept].sort().values, test)


def partition_around(held: Tensor, rows: int, config: RowsConfig, seed: int) -> Partition:
    """Partitions rows with the rows `held`, whole numbers (m,), as the test part: a cross-validation fold. Raises
    ConfigError.
    """
    order = torch.randperm(rows, dtype=torch.int32, generator=generator("partition", seed))
    rest = order[~torch.isin(order, held)]
    kept = _size(config.validation, len(rest))
    if kept >= len(rest):
        raise ConfigError(
            f"of {rows} rows none remains for training: {len(held)} are held out, {kept} validate",
            hint="lower `rows.validation`",
        )
    return Partition(rest[kept:][: config.train], rest[:kept].sort().values, held.int().sort().values)


class HasRows(Protocol):
    def rows(self, index: Tensor) -> Self: ...


_Rows = TypeVar("_Rows", bound=HasRows)


def sampled(source: _Rows, sample: Tensor | None) -> _Rows:
    """Some rows of labels or features, int64 (m,), in this order; None for all."""
    return source if sample is None else source.rows(sample)


def _size(share: int | float | str, rows: int) -> int:
    return round(share * rows) if isinstance(share, float) else int(share)


def generator(*parts: object) -> torch.Generator:
    """A CPU generator seeded by all parts, independent of the global one."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


_kept: dict[tuple[object, ...], Tensor] = {}  # by what they follow from, the last used last
_keeping = Lock()


def _permutation(count: int, *parts: object) -> Tensor:
    """An order of 0 .. count-1, int32 or int64 (count,), drawn from the parts.

    All members of a process share those used last: with `arrivals`, parties are in several epochs at once.
    """
    with _keeping:
        order = _kept.pop((count, *parts), None)
        if order is None:
            # The same numbers as of int64, in half the memory.
            dtype = torch.int32 if count <= torch.iinfo(torch.int32).max else torch.int64
            most = max(2, min(_MOST_KEPT, _BYTES_KEPT // (count * dtype.itemsize)))
            while len(_kept) >= most:
                del _kept[next(iter(_kept))]
            order = torch.randperm(count, dtype=dtype, generator=generator(*parts))
        _kept[count, *parts] = order
        return order


def _by_blocks(rows: int, how: BlockShuffle, seed: int, epoch: int, first: int, end: int) -> Tensor:
    """The rows at the places first .. end-1 of an epoch's order by blocks, int64: groups of blocks in the order of a
    permutation, the rows of each group mixed.
    """
    size, mixed = how.blocks, how.blocks * how.group
    blocks = _permutation(-(-rows // size), "blocks", seed, epoch).long()
    last = int((blocks == len(blocks) - 1).nonzero())  # the last block of the table, which may be short
    short, found = size * len(blocks) - rows, list[Tensor]()
    while first < end:
        # Groups after that of the short block begin earlier by what it lacks.
        group = first // mixed if first < (last // how.group + 1) * mixed - short else (first + short) // mixed
        own = blocks[group * how.group : (group + 1) * how.group]
        begin = group * mixed - (short if group > last // how.group else 0)
        count = len(own) * size - (short if group == last // how.group else 0)
        order = _permutation(count, "rows of blocks", seed, epoch, group)[first - begin : end - begin].long()
        if group == last // how.group:
            order += short * (order >= (last % how.group + 1) * size - short)
        found.append(own[order // size] * size + order % size)
        first += len(order)
    return torch.cat(found)


@dataclass
class Batches:
    """The batch B(t) of every round t, counted from 1. The last of an epoch may be smaller.

    Args:
        rows: number of training rows; positions are 0 .. rows-1.
        shuffle: True for a permutation per epoch, drawn from (seed, epoch), or one by blocks. Otherwise batches are the
            same in every epoch and contiguous (in `Partition.train`'s order).
    """

    rows: int
    batch: int
    seed: int = 0
    shuffle: Shuffle = False

    def __post_init__(self) -> None:
        if self.batch <= 0:
            raise InputError(f"a batch of {self.batch} rows is empty", hint="set `batch` to at least 1")
        if self.batch > self.rows:
            raise InputError(
                f"a batch of {self.batch} rows is more than the {self.rows} training rows",
                hint=f"set `batch` to at most {self.rows}",
            )

    @property
    def per_epoch(self) -> int:
        return -(-self.rows // self.batch)

    def of(self, round: int) -> Tensor:
        """(b,) int64: the batch's positions within the training rows, b <= batch.

        It depends on the arguments alone, not on earlier calls.
        """
        if round < 1:
            raise InputError(f"there is no batch for round {round}", hint="rounds are counted from 1")
        epoch, place = divmod(round - 1, self.per_epoch)
        first, end = place * self.batch, min((place + 1) * self.batch, self.rows)
        if not self.shuffle:
            return torch.arange(first, end)
        if isinstance(self.shuffle, BlockShuffle):
            return _by_blocks(self.rows, self.shuffle, self.seed, epoch, first, end)
        return _permutation(self.rows, "batches", self.seed, epoch)[first:end].long()
