"""Sums under encryption in `colonnade check`: every party's bins, how strongly sums are encrypted, what they tell."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from colonnade.client.privacy.answers import REPEATS
from colonnade.client.training.card import refuse_without_library
from colonnade.client.training.trees.bins import OwnBins, TableBins
from colonnade.common.config.federation import FederationConfig
from colonnade.common.config.members import PartyConfig
from colonnade.common.contracts.boosting import BoostedConfig
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.data.columns.features import Features
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
from colonnade.reports.console.progress import megabytes
from colonnade.reports.console.screen import out
from colonnade.reports.words import counted


class BinnedSums:
    """Checks of a federation whose parties add up the server's numbers over their bins."""

    def __init__(self, federation: FederationConfig) -> None:
        self._federation = federation
        self._config: Any = federation.protocol  # with the keys of bins
        self._contract = CONTRACTS[federation.protocol.name]
        self._returned = self._contract.exchange.returns == "sums"
        self._bins: dict[str, int] = {}

    def add(self, party: str, own: PartyConfig, table: Features, rows: Tensor) -> str:
        """Counts a party's bins; returns what to add to its line.

        Args:
            own: the party's section.
            rows: int64 (m,), of the table, that are of training as far as is known.

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
        """Prints what protects the sums, and what they tell.

        Raises:
            InputError: sums of numbers of the configured precision could leave their range.
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
