"""The table: one row per protocol, one column per number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from colonnade_lab.comparison.epsilons import ABOUT, at
from colonnade_lab.comparison.leaks import rebuilt_share
from colonnade_lab.comparison.plan import OWN, PLAIN, SLOW, UNITS, Unit
from colonnade_lab.comparison.protocol_results import ProtocolResults

_DASH = "-"
_UNKNOWN: Mapping[Unit, float] = MappingProxyType({})


def head(epsilons: Sequence[float], deltas: Mapping[Unit, float] = _UNKNOWN) -> list[str]:
    noisy = [f"at {at(unit, each, deltas)} of {ABOUT[unit]}" for unit in UNITS for each in epsilons]
    return [
        "protocol", "accuracy", "MB", "MB to 95 %", "rounds to 95 %", "s to 90 %, waiting",
        "s to 90 %, not waiting for all",
        *noisy, "labels named (chance)", "columns rebuilt",
    ]  # fmt: skip


def row(result: ProtocolResults, epsilons: Sequence[float]) -> list[str]:
    """A protocol's numbers as text; a dash where nothing is measured."""
    noisy = [_share(result.under(unit, each)) for unit in UNITS for each in epsilons]
    return [
        result.name,
        _spread(result.values(PLAIN, "accuracy")),
        amount(result.mean(PLAIN, "mb")),
        amount(result.mean(PLAIN, "mb@95")),
        amount(result.mean(PLAIN, "rounds@95"), digits=0),
        amount(result.mean(SLOW, "seconds@90"), digits=0),
        amount(result.mean(OWN, "seconds@90"), digits=0),
        *noisy,
        named(result),
        rebuilt(result),
    ]


def amount(value: float, digits: int = 2) -> str:
    if math.isnan(value):
        return _DASH
    return f"{value:.{digits}f}" if math.isfinite(value) else "never"


def named(result: ProtocolResults) -> str:
    """Share of labels that a party infers, with chance."""
    found, chance = result.named
    return _DASH if math.isnan(found) else f"{found:.0%} ({chance:.0%})"


def rebuilt(result: ProtocolResults) -> str:
    """Share of the columns' variance that the server reconstructs."""
    return _DASH if math.isnan(result.rebuilt) else f"{rebuilt_share(result):.0%}"


def _share(value: float) -> str:
    return _DASH if math.isnan(value) else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return _DASH
    mean = statistics.fmean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"
