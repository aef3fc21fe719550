"""Maps messages to the rows that they are about, with a value for each row."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from colonnade.client.transcript.capture import Captured, Way
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import InputError
from colonnade.common.messaging.message import Message, tensor_specs

_BY_ROW = ("rows", "losses", "lines")  # names of dimensions with one entry per row of the batch


@dataclass(frozen=True)
class Piece:
    """One tensor of one message, if it has a value for every row.

    Args:
        name: KIND.FIELD.
        way: "out" or "in".
        epoch: of the batch, from 1; for evaluations the epoch that has just ended.
        part: train, validation or test.
        rows: row numbers, int64 (n,).
        values: (n, width), or (n,) for one number per row, in the message's dtype.
    """

    name: str
    way: Way
    epoch: int
    part: str
    rows: Tensor
    values: Tensor


def pieces(
    schedule: Schedule,
    captured: Iterable[Captured],
    estimate: Callable[[Message, int, int], Tensor | None] = lambda _message, _turn, _rows: None,
) -> Iterator[Piece]:
    """Yields values of single rows in messages, in order.

    In asynchronous runs a message names the turn of its batch, and a response in the same round belongs to the last
    turn that left.

    Args:
        estimate: maps (message, turn, rows) to an estimate for every row, or None.
    """
    turns: dict[int, int] = {}
    for one in captured:
        if one.way == "out" and hasattr(one.message, "turn"):
            turns[one.round] = one.message.turn
        turn = turns.get(one.round, one.round)
        if turn < 1:
            continue  # keys and the like, before the first round
        part, rows = _rows(schedule, one.message, turn)
        kind, epoch = type(one.message).__name__, math.ceil(schedule.epoch(turn))
        if (made := estimate(one.message, turn, len(rows))) is not None:
            yield Piece(f"{kind}, estimated", one.way, epoch, part, rows, made)
        for name, spec in tensor_specs(type(one.message)):
            values: Tensor = getattr(one.message, name)
            if spec.dims[:1] == ("lines",):
                values = values[: len(rows)]  # the last line belongs to no row
            if spec.dims[:1] == ("rows",) and len(values) != len(rows):
                raise InputError(
                    f"a {type(one.message).__name__} of round {one.round} has {len(values)} rows, the schedule "
                    f"{len(rows)}",
                    hint="the configuration beside the captures is not the one that they were made under",
                )
            if spec.dims[:1] and spec.dims[0] in _BY_ROW and len(values) == len(rows) > 0:
                said = values if values.dim() == 1 else values.flatten(1)
                yield Piece(f"{kind}.{name}", one.way, epoch, part, rows, said)


def _rows(schedule: Schedule, message: Message, turn: int) -> tuple[str, Tensor]:
    part, stage = getattr(message, "part", ""), getattr(message, "stage", 0)
    if part:
        return part, schedule.blocks(part)[message.block]  # type: ignore[attr-defined]
    if stage:
        places = [(due, rows) for due in schedule.evaluations(message.round) for rows in schedule.blocks(due)]
        return places[stage - 1]
    return "train", schedule.batch(turn)


@dataclass
class FieldRecords:
    """Values of rows in one field of one kind: the first epoch and the newest.

    Args:
        epochs: number of newest epochs kept, in addition to the one before them (the newest may be incomplete).
    """

    epochs: int = 1
    _by_epoch: dict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))

    def add(self, piece: Piece) -> None:
        """Adds a piece, and drops pieces that have become too old."""
        self._by_epoch[piece.epoch].append(piece)
        between = sorted(self._by_epoch)[1 : -self.epochs - 1]
        for epoch in between:
            del self._by_epoch[epoch]

    def __len__(self) -> int:
        return sum(map(len, self._by_epoch.values()))

    @property
    def first(self) -> list[Piece]:
        return self._by_epoch[min(self._by_epoch)]

    @property
    def last(self) -> list[Piece]:
        """Returns the newest pieces of every row, an epoch's worth."""
        seen = torch.zeros(self._size(), dtype=torch.bool)
        kept = []
        for piece in reversed(self._all()):
            if not seen[piece.rows].all():
                kept.append(piece)
                seen[piece.rows] = True
        return kept[::-1]

    def newest(self) -> tuple[Tensor, Tensor]:
        """Returns row numbers, int64 (n,) ascending, and the mean of the newest `epochs` values, float32 (n, width)."""
        every = self._all()
        total = torch.zeros(self._size(), math.prod(every[0].values.shape[1:]))
        count = torch.zeros(len(total), dtype=torch.int64)
        for piece in reversed(every):
            fresh = count[piece.rows] < self.epochs
            rows = piece.rows[fresh]
            total[rows] += piece.values[fresh].reshape(len(rows), total.shape[1])
            count[rows] += 1
        rows = count.nonzero().flatten()
        return rows, total[rows] / count[rows, None]

    def _all(self) -> list[Piece]:
        return [piece for epoch in sorted(self._by_epoch) for piece in self._by_epoch[epoch]]

    def _size(self) -> int:
        return 1 + max(int(piece.rows.max()) for piece in self._all())


def by_field(found: Iterable[Piece], way: Way, epochs: int = 1) -> dict[str, FieldRecords]:
    """Collects the values of one direction by KIND.FIELD."""
    fields: dict[str, FieldRecords] = {}
    for piece in found:
        if piece.way == way:
            fields.setdefault(piece.name, FieldRecords(epochs)).add(piece)
    return fields


def vectors(known: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Concatenates all values of each row: row numbers, int64 (n,), and float32 (n, width).

    `known` has row numbers, int64 ascending, and values, (n, width), per field. Rows that a field lacks are dropped.
    Fields are brought to one scale.
    """
    size = 1 + max(int(rows.max()) for rows, _ in known)
    count = torch.zeros(size, dtype=torch.int64)
    for rows, _ in known:
        count[rows] += 1
    common = (count == len(known)).nonzero().flatten()
    parts = [values[torch.searchsorted(rows, common)] for rows, values in known]
    return common, torch.cat([part / part.std().clamp(min=1e-30) for part in parts], dim=1)
