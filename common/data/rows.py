"""Which rows train, validate and test, and which of them make up the batch of a round.

The server and every party derive both from the federation's one seed, so that no index travels.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Literal, Protocol, Self, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from colonnade.common.errors import ConfigError, InputError

_TEST_FRACTION = 0.2
_EPOCHS = 8  # whose orders are kept

Count = Annotated[int, Field(strict=True, ge=0)]
Fraction = Annotated[float, Field(strict=True, ge=0, lt=1)]


class RowsConfig(BaseModel):
    """How many rows train, validate and test: a count, or of the latter two a fraction below 1.

    Args:
        train: of the rows that are left when the others are out, at most; all if left out.
        validation: of the rows that are left when the test rows are out.
        test: of all rows, or `official` for the source's own test part. Left out, it is `official`
            where the source has such a part and a fifth elsewhere. A number draws from all rows and
            knows no official part.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    train: Annotated[int, Field(strict=True, ge=1)] | None = None
    validation: Count | Fraction = 0.1
    test: Count | Fraction | Literal["official"] | None = None


@dataclass(frozen=True)
class Partition:
    """Row numbers, int64, disjoint, together all rows unless `rows.train` takes fewer.

    Args:
        train: (m,) in an order drawn once from the seed, since many files are sorted by class.
        validation: ascending.
        test: ascending.
    """

    train: Tensor
    validation: Tensor
    test: Tensor


def partition(rows: int, official_test: int, config: RowsConfig, seed: int) -> Partition:
    """Deals rows 0 .. rows-1 to training, validation and test: MNIST gives 54000, 6000 and 10000.

    Args:
        rows: of the whole source.
        official_test: how many of the last rows are the source's own test part; 0 if it has none.
        config: how many rows go where.
        seed: equal arguments give equal rows.

    Raises:
        ConfigError: nothing remains for training, or there is no official part.
    """
    if config.test == "official" and not official_test:
        raise ConfigError(
            "`test: official`, but the source has no test part of its own",
            hint="give `test` a number of rows or a fraction",
        )
    official = config.test == "official" or (config.test is None and official_test > 0)
    pool = rows - official_test if official else rows
    order = torch.randperm(pool, generator=generator("partition", seed))
    drawn = 0 if official else _size(_TEST_FRACTION if config.test is None else config.test, pool)
    kept = drawn + _size(config.validation, pool - drawn)
    if kept >= pool:
        raise ConfigError(
            f"of {rows} rows none remains for training: {rows - pool + drawn} test, {kept - drawn} validate",
            hint="lower `rows.test` or `rows.validation`",
        )
    test = torch.arange(pool, rows) if official else order[:drawn].sort().values
    return Partition(order[kept:][: config.train], order[drawn:kept].sort().values, test)


class HasRows(Protocol):
    """Labels or features: what `sampled` takes rows of."""

    def rows(self, index: Tensor) -> Self:
        """These rows, in this order."""


_Rows = TypeVar("_Rows", bound=HasRows)


def sampled(source: _Rows, sample: Tensor | None) -> _Rows:
    """Some rows of labels or features, or all.

    Args:
        source: all rows.
        sample: row numbers, int64 (m,), in the order that they shall have; None for all.
    """
    return source if sample is None else source.rows(sample)


def _size(share: int | float | str, rows: int) -> int:
    return round(share * rows) if isinstance(share, float) else int(share)


def generator(*parts: object) -> torch.Generator:
    """A CPU generator that depends on every part, and on the global one not at all."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


@dataclass
class Batches:
    """The batch B(t) of every round t, counted from 1. The last of an epoch may be smaller.

    Args:
        rows: training rows; positions are 0 .. rows-1.
        batch: rows a batch.
        seed: of the permutations.
        shuffle: whether every epoch has a permutation of its own, drawn from (seed, epoch). Without
            it, batches are the same in every epoch and contiguous (the order is `Partition.train`'s).

    Raises:
        InputError: the batch is empty or larger than the rows.
    """

    rows: int
    batch: int
    seed: int = 0
    shuffle: bool = False
    _orders: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False)  # by epoch

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
        """Rounds that it takes to see every training row once."""
        return -(-self.rows // self.batch)

    def of(self, round: int) -> Tensor:
        """(b,) int64: the batch's positions within the training rows, b <= batch.

        The answer depends on the arguments and on nothing that was asked before. It may share memory
        with other answers: do not change it.

        Raises:
            InputError: `round` is below 1.
        """
        if round < 1:
            raise InputError(f"there is no batch for round {round}", hint="rounds are counted from 1")
        epoch, place = divmod(round - 1, self.per_epoch)
        return self._order(epoch if self.shuffle else 0)[place * self.batch : (place + 1) * self.batch]

    def _order(self, epoch: int) -> Tensor:
        """An epoch's rows. A few are kept: parties that come when they like are in several epochs at once."""
        if epoch not in self._orders:
            if len(self._orders) == _EPOCHS:
                del self._orders[next(iter(self._orders))]
            draws = generator("batches", self.seed, epoch)
            drawn = torch.randperm(self.rows, generator=draws) if self.shuffle else torch.arange(self.rows)
            self._orders[epoch] = drawn
        return self._orders[epoch]
