"""SecureBoost, party side. The box: common/protocols/secureboost.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from colonnade.client.training.bins import BinnedTable, Binning, binned, directions
from colonnade.client.training.context import ClientContext
from colonnade.client.training.sums import PartySums
from colonnade.common.contracts.prediction import SPLITS
from colonnade.common.conversation.conversation import SERVER, Link
from colonnade.common.encryption.clear import sums_of_groups
from colonnade.common.encryption.linear import Bins, Whole, keystream
from colonnade.common.encryption.messages import FALLING, MISSING, RISING, WIDEST, WORDS, Masks
from colonnade.common.encryption.parameters import SumSize
from colonnade.common.encryption.ring import Words
from colonnade.common.errors import ContractError, InputError
from colonnade.common.messaging.message import Message
from colonnade.common.privacy.sum_noise import discrete_gaussian
from colonnade.common.protocols.secureboost import (
    CELLS,
    Config,
    Nodes,
    Sides,
    Sums,
    Wanted,
    digits,
    levels,
    splits_at,
    splits_in,
    vectors_at,
    vectors_in,
)


async def participate(ctx: ClientContext, server: Link, cfg: Config) -> None:
    """Answers with sums over its bins, and with the sides of rows at the splits that the server asks for."""
    table, asked = binned(ctx, most=cfg.bins, least=cfg.least), Asked(ctx)
    matrix = table.one_hot(ctx.schedule.partition.train)
    encrypted = cfg.gradients == "encrypted"
    sums, below = PartySums(ctx, server, matrix, encrypted=encrypted), ClearSums(ctx, server, matrix, cfg)
    column_kinds = _kinds(table.columns, directions(ctx, table.columns))
    rounds, most = ctx.schedule.rounds, levels(cfg)
    vectors = ctx.answers("vectors", rounds * vectors_in(ctx.federation, cfg))
    splits = ctx.answers("splits", rounds * splits_in(ctx.federation, cfg))
    kinds: dict[type[Message], dict[str, int]] = {Masks: {"degree": sums.degree}, Wanted: {}}
    async for t in server.rounds(after=ctx.round):
        if not await sums.open(t, table.counts, column_kinds):  # 1, 2
            continue
        level, asked_at, question = -1, -1, _Question(cfg)
        while (came := await server.recv_one(kinds, t)) is not None:
            match came:
                case Masks():
                    if (level := _next(came, level + 1)) == most:
                        raise ContractError(SERVER, "Masks", "level", f"at most {most - 1}", str(level))
                    vectors.take(_few(came.d.shape[1], came, "d", vectors_at(level, ctx.federation, cfg)))
                    question.begin(came)
                    if encrypted or not level:
                        answer = await sums.add_up(t, came, question.hear, *([] if encrypted else [below.keep]))
                        y = None if answer is None else answer.end()
                    else:
                        y = await below.add_up(t, came, question)
                    if y is None:
                        break
                    if cfg.noise:
                        unit = np.uint64(sums.size.step if encrypted else 1)
                        y += unit * _noise(ctx, cfg, sums.size, (t, level, question.digest), y.shape)
                    await server.send(Sums(t, level, ctx.release(torch.from_numpy(y.view(np.int64)))))  # 4
                case Wanted():
                    _next(came, level)
                    if level == asked_at:
                        raise ContractError(SERVER, "Wanted", "level", "once a level", f"{level} again")
                    asked_at = level
                    splits.take(_few(len(came.columns), came, "columns", splits_at(level, ctx.federation, cfg)))
                    new = asked.read(came, table)
                    rows = torch.arange(len(table.codes))
                    for number, block in enumerate(torch.split(rows, CELLS)):
                        s = torch.from_numpy(np.packbits(asked.of(table.codes[block.numpy()], new).T, axis=1))
                        await server.send(Sides(t, level, number, ctx.release(s, rows=block)))  # 6


class _Question:
    """A digest of all that the server has sent in a round so far, if noise follows from it."""

    def __init__(self, cfg: Config) -> None:
        self._heard, self._kept = sha256(), cfg.noise > 0

    def begin(self, masks: Masks) -> None:
        self._heard.update(f"{masks.level} {tuple(masks.d.shape)} ".encode())
        self.hear(masks.d.numpy())

    def hear(self, block: NDArray[Any]) -> None:
        if self._kept:
            self._heard.update(np.ascontiguousarray(block).data)

    @property
    def digest(self) -> str:
        return self._heard.hexdigest()


def _noise(ctx: ClientContext, cfg: Config, size: SumSize, at: tuple[int, int, str], shape: tuple[int, ...]) -> Words:
    """Noise on sums, whole numbers, drawn from the party's secret, the round, the level and what was asked.

    The same question gets the same noise, since averages would reduce it; any other gets independent noise, since
    differences would remove it. The same sums can be asked for in other words, such as new ciphertexts: the count of
    answers bounds the averages of these.
    """
    draws = ctx.draws.generator("noise on sums", ctx.name, *at)
    key = torch.randint(256, (32,), dtype=torch.uint8, generator=draws).numpy().tobytes()
    noise = discrete_gaussian(math.prod(shape), max(1, round(cfg.noise * 2 ** cfg.bits_of(size))), keystream(key))
    return noise.view(np.uint64).reshape(shape)


def _kinds(columns: Sequence[Binning], rising: Mapping[int, int]) -> list[int]:
    return [
        WORDS * (column.cuts is None)
        + MISSING * (column.count > column.values)
        + {1: RISING, -1: FALLING}.get(rising.get(number, 0), 0)
        for number, column in enumerate(columns)
    ]


class ClearSums:
    """Sums below the root in the clear; the server sends each row's node instead of vectors."""

    def __init__(self, ctx: ClientContext, server: Link, matrix: Bins, cfg: Config) -> None:
        self._server, self._matrix, self._root = server, matrix, list[Whole]()
        self._blocks, self._digits = torch.split(ctx.schedule.partition.train, CELLS), digits(ctx.federation, cfg)

    def keep(self, c: Whole) -> None:
        """Keeps the root's gradients and Hessians of the next rows, int64 (rows, 2 outputs)."""
        if sum(map(len, self._root)) == self._matrix.shape[1]:  # of the round before
            self._root.clear()
        self._root.append(c)

    async def add_up(self, round: int, masks: Masks, question: _Question) -> Words | None:
        """The sums of a level, (bins, vectors); None if the server has moved on."""
        groups, numbers = masks.d.shape[1] // 2, np.concatenate(self._root)
        self._root, first, outputs = [numbers], 0, numbers.shape[1] // 2
        found = np.zeros((self._matrix.shape[0], 2 * groups), np.int64)
        for block, rows in enumerate(self._blocks):
            came = await self._server.recv(Nodes, round, cells=len(rows), outputs=outputs, digits=self._digits)
            if came is None:
                return None
            if (came.level, came.block) != (masks.level, block):
                expected, got = f"level {masks.level}, block {block}", f"level {came.level}, block {came.block}"
                raise ContractError(SERVER, "Nodes", "block", expected, got)
            n = np.ascontiguousarray(came.n.numpy())
            question.hear(n)
            places = n.view(f"<u{self._digits}")[..., 0].astype(np.int64) - 1
            if (largest := int(places.max(initial=-1)) + 1) > groups:
                raise ContractError(SERVER, "Nodes", "n", f"nodes of the level, at most {groups}", str(largest))
            last = first + len(rows)
            found += sums_of_groups(self._matrix.rows(first, last), numbers[first:last], places, groups)
            first = last
        return found.view(np.uint64)


class Asked:
    """The splits that the server has asked for, in their order; part of the state."""

    def __init__(self, ctx: ClientContext) -> None:
        self._kept: list[list[object]] = ctx.state.keep("splits", list)  # column, bins on the left in hex

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, wanted: Wanted, table: BinnedTable) -> range:
        """Adds a message's splits; returns their numbers.

        Raises ContractError if a column or bin does not exist, or a split has an empty side or was asked for before.
        """
        if wanted.first > len(self._kept):
            raise ContractError(SERVER, "Wanted", "first", f"at most {len(self._kept)}", str(wanted.first))
        del self._kept[wanted.first :]
        for column, left in zip(wanted.columns.tolist(), wanted.left.numpy(), strict=True):
            counts = table.counts
            if not 0 <= column < len(counts):
                raise ContractError(SERVER, "Wanted", "columns", f"0 to {len(counts) - 1}", str(column))
            bins = _unpacked(left.tobytes())
            try:
                table.columns[column].refuse(bins[: counts[column]])
            except InputError as wrong:
                raise ContractError(SERVER, "Wanted", "left", "a split of the column", str(wrong)) from None
            if bins[counts[column] :].any():
                raise ContractError(SERVER, "Wanted", "left", f"{counts[column]} bins", "more")
            split = [column, left.tobytes().hex()]
            if split in self._kept or len(self._kept) == SPLITS:
                raise ContractError(SERVER, "Wanted", "left", f"every split once, {SPLITS} at most", "one again")
            self._kept.append(list(split))
        return range(wanted.first, len(self._kept))

    def splits(self) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Each split's column and left bins, (WIDEST,)."""
        return ((int(str(column)), _unpacked(bytes.fromhex(str(left)))) for column, left in self._kept)

    def of(self, codes: NDArray[np.integer], numbers: range) -> NDArray[np.bool_]:
        """Sides of rows from their bins, (rows, columns): bool (rows, splits)."""
        found = np.zeros((len(codes), len(numbers)), bool)
        for place, number in enumerate(numbers):
            column, left = self._kept[number]
            found[:, place] = _unpacked(bytes.fromhex(str(left)))[codes[:, int(str(column))]]
        return found


class Decided:
    """The splits of a run, for rows that may differ from those of training."""

    def __init__(self, table: BinnedTable, asked: Asked) -> None:
        self._table, self._asked = table, asked

    def of_rows(self, rows: Tensor) -> Tensor:
        """Numbers of rows, int64 (rows,) -> packed bits, uint8 (rows, bytes)."""
        sides = self._asked.of(self._table.codes[rows.numpy()], range(len(self._asked)))
        return torch.from_numpy(np.packbits(sides, axis=1))

    def described(self) -> list[tuple[str, dict[str, Any], str]]:
        """As `Splits.described`."""
        asked = [(self._table.columns[number], left) for number, left in self._asked.splits()]
        sides = [(column, left[: column.count]) for column, left in asked]
        return [(column.name, column.record(left), column.describe(left)) for column, left in sides]


def splits(ctx: ClientContext, cfg: Config) -> Decided:
    """The splits of the state, for new rows."""
    return Decided(binned(ctx, most=cfg.bins, least=cfg.least), Asked(ctx))


def _next(came: Masks | Wanted, level: int) -> int:
    if came.level != level:
        raise ContractError(SERVER, type(came).__name__, "level", str(level), str(came.level))
    return level


def _few(count: int, came: Masks | Wanted, field: str, most: int) -> int:
    """The number of vectors or splits of a level. Raises ContractError if no tree needs that many."""
    if count > most:
        raise ContractError(SERVER, type(came).__name__, field, f"at most {most} at level {came.level}", str(count))
    return count


def _unpacked(left: bytes) -> NDArray[np.bool_]:
    return np.unpackbits(np.frombuffer(left, np.uint8), count=WIDEST).astype(bool)
