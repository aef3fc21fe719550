"""Rows in K segments for coded computing: one coded row stands for K real ones.

Every part (training, validation, test) is cut into K segments of equal length, the last one padded. Position i of a
part stands for the i-th row of each of its segments; a batch of positions stands for K times as many rows, in segment
order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.rows import Batches, Partition
from colonnade.common.errors import ConfigError

PARTS = ("train", "validation", "test")
NOTHING = -1  # row number of padding


@dataclass(frozen=True)
class Block:
    """Some coded rows.

    Args:
        positions: among all coded rows, int64 (coded,).
        rows: the real rows that they stand for, int64 (K * coded,) in segment order, NOTHING for padding.
    """

    positions: Tensor
    rows: Tensor

    @property
    def real(self) -> Tensor:
        return self.rows != NOTHING


class CodedRows:
    """The coded rows of a federation: those of training first, then validation's and test's.

    Args:
        segments: K.
        federation: a batch has floor(`batch` / K) coded rows, at least one.

    Attributes:
        evaluated: number of them in validation and test.
        batch: coded rows of a full batch.
    """

    def __init__(self, partition: Partition, segments: int, federation: FederationConfig) -> None:
        if segments > len(partition.train):
            raise ConfigError(
                f"federation.protocol.segments = {segments}: there are {len(partition.train)} training rows",
                hint="take fewer segments",
            )
        self._segments = segments
        self._tables = {part: _cut(getattr(partition, part), segments) for part in PARTS}
        lengths = [table.shape[1] for table in self._tables.values()]
        self._offsets = dict(zip(PARTS, [0, lengths[0], lengths[0] + lengths[1]], strict=True))
        self.total, self.evaluated = sum(lengths), sum(lengths[1:])
        self.batch = min(max(1, federation.batch // segments), lengths[0])
        self._batches = Batches(lengths[0], self.batch, federation.seed, federation.shuffle)

    def training(self, round: int) -> Block:
        """B(t)."""
        return self._block("train", self._batches.of(round))

    def blocks(self, part: str) -> list[Block]:
        """All coded rows of a part in order, in blocks of a batch."""
        places = torch.arange(self._tables[part].shape[1])
        return [self._block(part, some) for some in torch.split(places, self.batch)] if len(places) else []

    def chunks(self, size: int) -> list[Block]:
        """All coded rows of all parts in order, in blocks of `size`."""
        every = torch.cat([self._tables[part] for part in PARTS], dim=1)  # (K, total)
        return [Block(places, every[:, places].reshape(-1)) for places in torch.split(torch.arange(self.total), size)]

    def _block(self, part: str, places: Tensor) -> Block:
        return Block(places + self._offsets[part], self._tables[part][:, places].reshape(-1))


def _cut(rows: Tensor, segments: int) -> Tensor:
    """(M,) -> (K, ceil(M / K))."""
    length = -(-len(rows) // segments)
    filled = torch.full((segments * length,), NOTHING, dtype=torch.int64)
    filled[: len(rows)] = rows
    return filled.view(segments, length)
