"""Maps messages to the rows that they are about, with a value for each row, and combines a row's values over epochs.

Noise protects one message of a row, but not many: fresh noise averages out, while the messages' information about the
row stays. Models move meanwhile, so a mean over all epochs also averages different embeddings. The means of a few
windows of epochs, side by side, keep the movement, and their principal components keep what the windows have in common.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from sklearn.utils.extmath import randomized_svd
from torch import Tensor

from colonnade.client.transcript.capture import Captured, Way
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import InputError
from colonnade.common.messaging.message import Message, tensor_specs
from colonnade.common.models.zeroth_order import Directions, estimate
from colonnade.common.protocols.czofo import Config, Differences
from colonnade_lab.attacks.run import AttackedRun

Estimate = Callable[[Message, int, int], Tensor | None]
"""(message, turn, rows of its batch) -> an estimate for every row, (rows, width), or None."""


def estimates(run: AttackedRun, party: str) -> Estimate:
    """Returns an estimator by Eq. 2 of VFL-CZOFO for every response to a party; it returns None for other protocols."""
    federation = run.config.federation
    cfg = federation.protocol
    if not isinstance(cfg, Config):
        return _no_estimate
    directions = Directions(federation.seed, cfg.draw, cfg.directions, cfg.embedding)

    def of(message: Message, turn: int, rows: int) -> Tensor | None:
        if not isinstance(message, Differences):
            return None
        return estimate(message.delta, directions.of(party, turn, rows).u, directions.factor)

    return of


def _no_estimate(_message: Message, _turn: int, _rows: int) -> None:
    pass


_BY_ROW = ("rows", "losses", "lines")  # names of dimensions with one entry per row of the batch


@dataclass(frozen=True)
class Piece:
    """One tensor of one message, if it has a value for every row.

    Args:
        name: KIND.FIELD.
        epoch: the batch's, from 1; for evaluations the epoch that has just ended.
        part: train, validation or test.
        values: (n, width), or (n,) for one number per row, in the message's dtype.
    """

    name: str
    way: Way
    epoch: int
    part: str
    rows: Tensor
    values: Tensor


def pieces(schedule: Schedule, captured: Iterable[Captured], estimate: Estimate = _no_estimate) -> Iterator[Piece]:
    """Yields values of single rows in messages, in order.

    In asynchronous runs a message names the turn of its batch, and a response in the same round belongs to the last
    turn that left.
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
    """Values of rows in one field of one kind, of the first epoch and of the newest `epochs` + 1.

    The newest epoch may be incomplete.
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


def vectors(known: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Concatenates all values of each row: row numbers, int64 (n,), and float32 (n, width).

    `known` has row numbers, int64 ascending, and values, (n, width), per field. Rows that a field lacks are dropped.
    Fields are brought to one scale.
    """
    common, parts = common_rows(known)
    return common, torch.cat([part / part.std().clamp(min=1e-30) for part in parts], dim=1)


def common_rows(known: Sequence[tuple[Tensor, Tensor]]) -> tuple[Tensor, list[Tensor]]:
    """Row numbers common to all, ascending, and each one's values for these rows."""
    common = known[0][0]
    for rows, _ in known[1:]:
        common = common[torch.isin(common, rows)]
    return common, [values[torch.searchsorted(rows, common)] for rows, values in known]


_WINDOWS = 12  # of a transcript, at most

Rows = tuple[Tensor, Tensor]
"""Row numbers, int64 (n,) ascending, and their values, float32 (n, width)."""


class Transcript:
    """Sums of every row's values in windows of `length` epochs; `prepare` is applied to every message's values."""

    def __init__(self, length: int, prepare: Callable[[Tensor], Tensor] = lambda values: values) -> None:
        self._length, self._prepare = length, prepare
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[int, Tensor] = {}

    def add(self, piece: Piece) -> None:
        """Adds a message's values, one number or one vector per row."""
        values = self._prepare(piece.values.reshape(len(piece.rows), -1).float())
        window, most = (piece.epoch - 1) // self._length, 1 + int(piece.rows.max())
        total, count = self._grown(window, most, values.shape[1])
        total[piece.rows] += values
        count[piece.rows] += 1

    def mean(self) -> Rows:
        size = max(map(len, self._counts.values()))
        total = torch.stack([_filled(part, size) for part in self._sums.values()]).sum(0)
        count = torch.stack([_filled(part, size) for part in self._counts.values()]).sum(0)
        rows = count.nonzero().flatten()
        return rows, total[rows] / count[rows, None]

    def windows(self) -> Rows:
        """The windows' means side by side, each centred and on one scale; zeros where a row has no message."""
        rows, _ = self.mean()
        parts = []
        for window in sorted(self._sums):
            size = 1 + int(rows.max())
            total, count = _filled(self._sums[window], size)[rows], _filled(self._counts[window], size)[rows]
            there = count > 0
            mean = torch.zeros_like(total)
            found = total[there] / count[there, None]
            mean[there] = (found - found.mean(0)) / found.std(correction=0).clamp(min=1e-30)
            parts.append(mean)
        return rows, torch.cat(parts, dim=1)

    def _grown(self, window: int, size: int, width: int) -> tuple[Tensor, Tensor]:
        total = self._sums.get(window, torch.zeros(0, width))
        if len(total) < size:
            self._sums[window] = _filled(total, size)
            self._counts[window] = _filled(self._counts.get(window, torch.zeros(0, dtype=torch.int64)), size)
        return self._sums[window], self._counts[window]


def gathered(found: Iterable[Piece], way: Way, *makes: Callable[[], FieldRecords | Transcript]) -> list[dict[str, Any]]:
    """Feeds one direction to several collectors in a single reading, and returns their results by KIND.FIELD."""
    fields: list[dict[str, FieldRecords | Transcript]] = [{} for _ in makes]
    for piece in found:
        if piece.way == way:
            for made, make in zip(fields, makes, strict=True):
                made.setdefault(piece.name, make()).add(piece)
    return fields


def window_length(run: AttackedRun) -> int:
    """Returns the epochs per window of a transcript."""
    return max(1, math.ceil(run.epochs / _WINDOWS))


def principal(values: Tensor, most: int) -> Tensor:
    """Returns the leading principal components of (n, width), float32 (n, at most `most`)."""
    centred = (values - values.mean(0)).double()
    count = min(most, *centred.shape)
    left, sizes, _ = randomized_svd(centred.numpy(), count, random_state=0)
    return torch.from_numpy(left * sizes).float()


def _filled(values: Tensor, size: int) -> Tensor:
    return torch.cat([values, values.new_zeros(size - len(values), *values.shape[1:])])
