"""Protocols of sums in `colonnade check`.

Sums under encryption: every party's bins, the strength of the encryption, and what the sums reveal.

FedVS: the margin of the sums before they wrap around, and the cost of every number of segments K that a roster allows.
A larger K leaves each party less to compute and allows fewer late parties: R = 2 (K + T - 1) + 1 responses decode (Li,
Yao, Liu 2023, Theorem 5.1 and Section 5.3). Bytes are those of the tensors, counted from the messages of
common/protocols/fedvs.py; a test compares them with a simulated run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rich.filesize import decimal
from torch import Tensor, nn

from colonnade.client.aggregation.coded import (
    columns_of,
    margin,
    polynomial,
    quantised_data,
    refuse_wrapping,
    rounded_weights,
)
from colonnade.client.privacy.answers import REPEATS
from colonnade.client.training.bins import OwnBins, TableBins
from colonnade.client.training.card import refuse_without_library
from colonnade.common.aggregation.fixed_point import from_field
from colonnade.common.aggregation.lagrange import PARTS, CodedRows, LagrangeCode
from colonnade.common.aggregation.masked_sums import confirmed
from colonnade.common.config.compression import form_of
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.contracts.boosting import BoostedConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.crypto.lengths import OVERHEAD, PROOF_BYTES
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.draws import own_draws
from colonnade.common.data.rows import Partition
from colonnade.common.encryption.parameters import (
    DEGREE,
    LEAST_SIGMA,
    PROBES,
    ROWS_A_BIN,
    WORD,
    SumSize,
    security,
    solvable,
)
from colonnade.common.models.polynomial import Polynomial
from colonnade.common.protocols.fedvs import Config
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.progress import megabytes
from colonnade.reports.console.screen import out
from colonnade.reports.words import counted


class BinnedSums:
    """Checks of a federation whose parties sum the server's numbers over their bins."""

    def __init__(self, federation: FederationConfig) -> None:
        self._federation = federation
        self._config: Any = federation.protocol  # with the keys of bins
        self._contract = CONTRACTS[federation.protocol.name]
        self._returned = self._contract.exchange.returns == "sums"
        self._bins: dict[str, int] = {}

    def add(self, party: str, own: PartyConfig, table: Features, rows: Tensor) -> str:
        """Counts a party's bins; returns an addition to its line.

        Args:
            rows: the table's training rows, as far as known, int64 (m,).

        Raises:
            DataError: no column has two bins; or as `TableBins.fit`.
            EnvironmentFault: a scorecard's bins need a library that is not installed.
        """
        if self._config.cards:
            refuse_without_library()
        bins, warn = TableBins(), lambda said: out.warn(f"{party}: {said}")
        most, least = self._config.bins, self._config.least
        bins.fit(table, rows, warn, OwnBins.of(party, own), most=most, least=least)
        self._bins[party] = sum(column.count for column in bins.columns)
        return f"; {self._bins[party]} bins of {counted(len(bins.columns), 'column')}"

    def show(self, schedule: Schedule) -> None:
        """Prints the protection of the sums, and what they reveal. Raises InputError if sums of numbers of the
        configured precision could leave their range.
        """
        assert self._contract.vectors is not None  # otherwise there are no sums
        rows, config = len(schedule.partition.train), self._config
        size, each = SumSize(rows), self._contract.vectors(self._federation, config)
        vectors = schedule.rounds * each
        boosted = isinstance(config, BoostedConfig)
        if not boosted or config.gradients == "encrypted":
            bits = config.bits_of(size) if boosted else size.precision
            answers = PROBES if self._returned else REPEATS * vectors
            left = size.residual(answers, size.probe_noise if self._returned else 0)
            said = (
                f"encryption: {security()} bits of security by the Homomorphic Encryption Standard (N = {DEGREE}, q = "
                f"2^{WORD}); gradients of {bits} bits besides the sign; each answer's noise is 2^"
                f"{math.log2(size.flood / size.hidden):.0f} times what it hides; after {answers} answers a hint is as "
                f"hard as one with errors of {left:.1f} and no answer ({LEAST_SIGMA} at least); a "
                f"round takes up to {megabytes(8 * each * (rows + DEGREE))} to every party"
            )
            out.say(said)
        if self._returned:
            out.warn(
                "the sums go back to their owners under a mask: each party learns how many training rows of each class "
                f"are in each of its bins, and the server no sum over a bin (docs/protocols/{config.name}.md)"
            )
            if found := solvable(self._bins, rows):
                out.warn(found)
        elif vectors * ROWS_A_BIN > rows:
            out.warn(
                f"the server learns sums of up to {vectors} vectors over each bin, of {rows} training rows: enough to "
                "solve for many rows' bins (docs/encryption.md, Columns)"
            )


_ELEMENT, _LENGTH = 4, 8  # bytes of an int32 and of an int64


@dataclass(frozen=True)
class CodingCost:
    """Cost of one K. Tuples hold one number a party, in the roster's order.

    Args:
        segments: K.
        answers: R, the responses needed to decode.
        stragglers: N - R, responses that a round need not wait for.
        rows: real rows of a full batch.
        work: a party's multiplications for a full batch, relative to its own embeddings of a plain batch.
        up, down: bytes of a training round with a full batch and everyone's shares, including proofs of the set unless
            it can only be all, without the server's signature on the set (70 to 72 bytes).
        preparation_up, preparation_down: bytes of sharing the data, once.
    """

    segments: int
    answers: int
    stragglers: int
    rows: int
    work: tuple[float, ...]
    up: tuple[int, ...]
    down: tuple[int, ...]
    preparation_up: tuple[int, ...]
    preparation_down: tuple[int, ...]


def coding_costs(federation: FederationConfig, columns: Sequence[int], partition: Partition) -> list[CodingCost]:
    """Costs of K = 1, 2 .. while N - R is at least 0 and there are training rows.

    Args:
        columns: every party's, powers and bias included, in roster order.
    """
    config = federation.protocol
    assert isinstance(config, Config)  # callers check it
    largest = min(config.most_segments(len(columns), 0), len(partition.train))
    return [_cost(federation, config, columns, partition, segments) for segments in range(1, largest + 1)]


def _cost(
    federation: FederationConfig, config: Config, columns: Sequence[int], partition: Partition, segments: int
) -> CodingCost:
    rows, parties = CodedRows(partition, segments, federation), len(columns)
    answers, real = 2 * (segments + config.masks - 1) + 1, segments * rows.batch
    answer = _ELEMENT * rows.batch * config.embedding
    models = [_box(config, count * config.embedding, rows.batch) for count in columns]
    bundles, proofs = _bundles(models), PROOF_BYTES * parties if confirmed(federation) else 0
    chunks = [len(chunk.positions) for chunk in rows.chunks(config.chunk)]
    data = [[_ELEMENT * coded * count + OVERHEAD for count in columns] for coded in chunks]
    received = [sum(sizes) for sizes in zip(*map(_bundles, data), strict=True)]
    return CodingCost(
        segments,
        answers,
        parties - answers,
        real,
        work=tuple(rows.batch * sum(columns) / (federation.batch * count) for count in columns),
        # Shares, Opened, SetProof, Answer; Bundle, Senders, SetProofs, Gradient
        up=tuple((parties - 1) * box + parties + proofs + answer for box in models),
        down=tuple(bundle + parties + proofs + _gradient(federation, real, config.embedding) for bundle in bundles),
        preparation_up=tuple((parties - 1) * sum(boxes) for boxes in zip(*data, strict=True)),
        preparation_down=tuple(_LENGTH * parties + size for size in received),  # Preparation's columns, Bundles
    )


def _box(config: Config, elements: int, coded: int) -> int:
    """Bytes of a sealed share of a model; with masked responses, shares of masks are appended."""
    masks = coded * config.embedding if config.masked_answers else 0
    return _ELEMENT * (elements + masks) + OVERHEAD


def _bundles(boxes: Sequence[int]) -> list[int]:
    """Bytes forwarded to every party: the others' boxes, and the length of each."""
    return [sum(boxes) - own + _LENGTH * len(boxes) for own in boxes]


def _gradient(federation: FederationConfig, rows: int, width: int) -> int:
    return form_of(federation.compress.down).size((rows, width))


_ROWS = 4096  # of a party, processed at a time
_HEADER = ("K", "R", "late", "rows", "work", "up", "down", "data up", "data down")
_CAPTION = (
    "K segments: R responses decode, and N - R may be late. Real rows a batch. A party's multiplications relative to "
    "plain embeddings, least to most. Bytes a party and round, and once for the data, of the party that has most. "
    "* as configured. Margin, above: how many times a party's part of the sums fits before the first round; below 1 "
    "they could wrap around."
)


class Coding:
    """Checks of the parties of a coded federation."""

    def __init__(self, federation: FederationConfig, config: Config) -> None:
        self._federation, self._config = federation, config
        self._code = LagrangeCode.of(config.code(len(federation.names)))
        self._columns: dict[str, int] = {}
        self._partition: Partition | None = None

    def add(self, party: str, columns: Columns, model: nn.Module, partition: Partition) -> str:
        """Checks a party's data and its model before the first round.

        Returns:
            Text to append to the line of the party.

        Raises:
            ConfigError: its model or the number of its columns does not fit, or there are more segments than rows.
            DataError: its data or weights cannot be quantised, or sums with them could wrap.
        """
        CodedRows(partition, self._code.segments, self._federation)
        network = polynomial(party, model)
        count = self._columns[party] = columns_of(party, network, self._config)
        self._partition = partition
        times = self._margin(party, network, self._largest(party, columns, network, partition))
        if times < 1:
            out.say(f"{party}: margin {times:.3g}, which must be at least 1")
        refuse_wrapping(party, self._code.field, times, len(self._federation.names))
        return f"; {count} columns with powers and bias, margin {times:.3g}"

    def show(self) -> None:
        """Prints the table, once all parties are known."""
        if self._partition is None or (lacking := len(self._federation.names) - len(self._columns)):
            out.say(f"the cost of each K needs every party's columns: {lacking} of them have no section here")
            return
        columns = [self._columns[name] for name in self._federation.names]
        table = Grid(*_HEADER, note=_CAPTION)
        for cost in coding_costs(self._federation, columns, self._partition):
            chosen = cost.segments == self._code.segments
            table.add_row(*_cells(cost, "*" if chosen else ""), style="bold" if chosen else "")
        out.show(table)

    def _largest(self, party: str, columns: Columns, model: Polynomial, partition: Partition) -> Tensor:
        """Magnitude of each column's largest entry, quantised, int64 (1, columns)."""
        largest = torch.zeros(1, self._columns[party], dtype=torch.int64)
        for rows in torch.split(torch.cat([getattr(partition, part) for part in PARTS]), _ROWS):
            values = model.powers(columns[rows])
            quantised = quantised_data(party, self._code.field, values, self._config.data_bits)
            largest = torch.maximum(largest, from_field(self._code.field, quantised).abs().amax(0, keepdim=True))
        return largest

    def _margin(self, party: str, model: Polynomial, largest: Tensor) -> float:
        draws = own_draws(self._federation, party).generator("weights")  # the party's own may differ
        weights = rounded_weights(party, self._code.field, model, self._config.weight_bits, draws)
        return margin(self._code.field, largest, weights, len(self._federation.names))


def _cells(cost: CodingCost, mark: str) -> Sequence[str]:
    sizes = (cost.up, cost.down, cost.preparation_up, cost.preparation_down)
    counts = (f"{mark}{cost.segments}", str(cost.answers), str(cost.stragglers), str(cost.rows))
    return *counts, _range(cost.work), *(decimal(max(size)) for size in sizes)


def _range(values: Sequence[float]) -> str:
    least, most = f"{min(values):.1f}", f"{max(values):.1f}"
    return least if least == most else f"{least}-{most}"
