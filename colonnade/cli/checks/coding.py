"""FedVS in `colonnade check`: the cost of every K, and the margin of the sums before they wrap around."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rich.filesize import decimal
from torch import Tensor, nn

from colonnade.cli.checks.coding_costs import CodingCost, coding_costs
from colonnade.client.aggregation.coded import (
    columns_of,
    margin,
    polynomial,
    quantised_data,
    refuse_wrapping,
    rounded_weights,
)
from colonnade.common.aggregation.coded_rows import PARTS, CodedRows
from colonnade.common.aggregation.fixed_point import from_field
from colonnade.common.aggregation.lagrange import LagrangeCode
from colonnade.common.config.federation import FederationConfig
from colonnade.common.data.columns.scale import Columns
from colonnade.common.data.draws import own_draws
from colonnade.common.data.rows import Partition
from colonnade.common.models.towers.polynomial import Polynomial
from colonnade.common.protocols.fedvs import Config
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out

_ROWS = 4096  # of a party, processed at a time
_HEADER = ("K", "R", "late", "rows", "work", "up", "down", "data up", "data down")
_CAPTION = (
    "K segments: R responses decode, and N - R may be late. Real rows a batch. A party's multiplications relative to "
    "plain embeddings, least to most. Bytes a party and round, and once for the data, of the party that has most. "
    "* as configured. Margin, above: how many times a party's part of the sums fits before the first round; below 1 "
    "they could wrap around."
)


class Coding:
    """Checks of the parties of a coded federation.

    Args:
        federation: the agreed section.
        config: its protocol.
    """

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
