"""The table: a row a protocol, a column a number."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from colonnade.reproduction.comparison.epsilons import ABOUT, at
from colonnade.reproduction.comparison.leaks import rebuilt_share
from colonnade.reproduction.comparison.plan import OWN, PLAIN, SLOW, UNITS, Unit
from colonnade.reproduction.comparison.protocol_results import ProtocolResults

_DASH = "-"
_UNKNOWN: Mapping[Unit, float] = MappingProxyType({})


def head(epsilons: Sequence[float], deltas: Mapping[Unit, float] = _UNKNOWN) -> list[str]:
    """What the columns are called."""
    noisy = [f"at {at(unit, each, deltas)} of {ABOUT[unit]}" for unit in UNITS for each in epsilons]
    return [
        "protocol", "accuracy", "MB", "MB to 95 %", "rounds to 95 %", "s to 90 %, waiting", "s to 90 %, its own way",
        *noisy, "labels named (chance)", "columns rebuilt",
    ]  # fmt: skip


def row(lane: ProtocolResults, epsilons: Sequence[float]) -> list[str]:
    """The numbers of a protocol in words; a dash where there is nothing to measure."""
    noisy = [_share(lane.under(unit, each)) for unit in UNITS for each in epsilons]
    return [
        lane.name,
        _spread(lane.values(PLAIN, "accuracy")),
        amount(lane.mean(PLAIN, "mb")),
        amount(lane.mean(PLAIN, "mb@95")),
        amount(lane.mean(PLAIN, "rounds@95"), digits=0),
        amount(lane.mean(SLOW, "seconds@90"), digits=0),
        amount(lane.mean(OWN, "seconds@90"), digits=0),
        *noisy,
        named(lane),
        rebuilt(lane),
    ]


def amount(value: float, digits: int = 2) -> str:
    """A number as people read it."""
    if math.isnan(value):
        return _DASH
    return f"{value:.{digits}f}" if math.isfinite(value) else "never"


def named(lane: ProtocolResults) -> str:
    """The share of labels that a party names, beside chance."""
    found, chance = lane.named
    return _DASH if math.isnan(found) else f"{found:.0%} ({chance:.0%})"


def rebuilt(lane: ProtocolResults) -> str:
    """The share of the columns' variance that the server rebuilds."""
    return _DASH if math.isnan(lane.rebuilt) else f"{rebuilt_share(lane):.0%}"


def _share(value: float) -> str:
    return _DASH if math.isnan(value) else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return _DASH
    mean = statistics.fmean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"
