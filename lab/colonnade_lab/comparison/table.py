"""The table, one row per protocol, and the protocols recommended for each need, from the measured numbers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from colonnade_lab.comparison.plan import ABOUT, OWN, PLAIN, SLOW, UNITS, Unit, at
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
    found, chance = result.named
    return _DASH if math.isnan(found) else f"{found:.0%} ({chance:.0%})"


def rebuilt(result: ProtocolResults) -> str:
    return _DASH if math.isnan(result.rebuilt) else f"{result.rebuilt_share:.0%}"


def _share(value: float) -> str:
    return _DASH if math.isnan(value) else f"{value:.1f}"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return _DASH
    mean = statistics.fmean(values)
    return f"{mean:.1f} ± {statistics.stdev(values):.1f}" if len(values) > 1 else f"{mean:.1f}"


GOOD = 90.0
"""Per cent of test rows that a protocol must get right to be named for anything but being the most accurate."""

_FEW = 3
_VOID: Mapping[Unit, str] = {"client": "", "row": ": no guarantee for a row"}
_ALL = 0.98  # share of labels; a party that names more has them
_ASKED: Mapping[Unit, str] = {
    "client": " when evaluated without the noise; with it, those that were tried predicted at chance",
    "row": "",
}
"""Caveat of an accuracy under noise: all were evaluated without it, and noise on a whole party leaves nothing."""


@dataclass(frozen=True)
class Need:
    """A need in words, the protocols that serve it (best first; empty if none does), and the numbers as a reason."""

    need: str
    best: Sequence[str]
    why: str

    @property
    def take(self) -> str:
        return ", ".join(self.best) or "none"


def needs(
    results: Sequence[ProtocolResults], epsilons: Sequence[float], deltas: Mapping[Unit, float] = _UNKNOWN
) -> list[Need]:
    """Returns all needs for which something was measured.

    Protocols that send the labels to parties are never recommended for protection, whatever their numbers.
    """
    free = [result for result in results if not result.entry.reference]
    good = [result for result in free if result.accuracy >= GOOD]
    discreet = [result for result in free if not result.contract.exchange.shares_labels]
    both = [result for result in good if result in discreet]
    found = [
        _ranked("the most accurate", free, lambda one: -one.accuracy, lambda one: f"{one.accuracy:.1f} %"),
        _ranked("fewest bytes to 95 %", good, lambda one: one.mean(PLAIN, "mb@95"),
                lambda one: f"{amount(one.mean(PLAIN, 'mb@95'))} MB"),
        _ranked("fewest rounds to 95 %", good, lambda one: one.mean(PLAIN, "rounds@95"),
                lambda one: amount(one.mean(PLAIN, "rounds@95"), digits=0)),
        _ranked("fastest with stragglers", good, lambda one: one.fastest[1], _in_seconds),
        *(_under(unit, f"{at(unit, each, deltas)} of {ABOUT[unit]}{_VOID[unit]}", each, discreet)
          for unit in UNITS for each in epsilons),
        _ranked("fewest labels named beyond chance", both, lambda one: one.named[0] - one.named[1],
                lambda one: f"{one.named[0]:.0%}, by chance {one.named[1]:.0%}",
                serves=lambda one: one.named[0] < _ALL),
        _ranked("least rebuilt by the server", both, lambda one: one.rebuilt_share,
                lambda one: f"{one.rebuilt_share:.0%} of the variance"),
    ]  # fmt: skip
    return [*(need for need in found if need is not None), *_by_nature(free)]


def _ranked(
    need: str,
    results: Sequence[ProtocolResults],
    key: Callable[[ProtocolResults], float],
    say: Callable[[ProtocolResults], str],
    serves: Callable[[ProtocolResults], bool] = lambda _result: True,
) -> Need | None:
    """Ranks the best few that serve; if none does, the best value alone. None if nothing was measured."""
    ranked = sorted((result for result in results if math.isfinite(key(result))), key=key)
    if not ranked:
        return None
    best = [result for result in ranked if serves(result)][:_FEW]
    if not best:
        return Need(need, (), f"at best {ranked[0].name} {say(ranked[0])}")
    return Need(need, [result.name for result in best], ", ".join(f"{result.name} {say(result)}" for result in best))


def _under(unit: Unit, need: str, epsilon: float, results: Sequence[ProtocolResults]) -> Need | None:
    return _ranked(
        need,
        results,
        lambda one: -one.under(unit, epsilon),
        lambda one: f"{one.under(unit, epsilon):.1f} %{_ASKED[unit]}",
        serves=lambda one: unit == "row" and one.under(unit, epsilon) >= GOOD,
    )


def _in_seconds(result: ProtocolResults) -> str:
    way, seconds = result.fastest
    return f"{amount(seconds, digits=0)} s ({result.entry.way if way == OWN else 'waiting for all'})"


def _by_nature(results: Sequence[ProtocolResults]) -> list[Need]:
    """Needs served by a protocol's design, rather than by its numbers."""

    def able(test: Callable[[ProtocolResults], bool]) -> list[str]:
        return [result.name for result in results if test(result)]

    return [
        Need("the server sees sums alone", able(_sums_alone),
             "fedvs by a code, its responses masked, the others with aggregate: blinded; neither was measured here; "
             "vfedmh shows the server sums of embeddings, and each party's predictions"),
        Need("parties join at any time", able(lambda one: one.name == "zoo_vfl" or _has(one, "arrivals")),
             "arrivals: true; zoo_vfl always"),
        Need("a complete model for every party", able(lambda one: one.name == "vfedmh"),
             "own architecture, head and optimiser; in the others bottom models may differ as well, behind embeddings "
             "or logits of one width"),
        Need("noise on the responses, for the labels", able(lambda one: one.contract.response_noise),
             "server.privacy.answers; server.privacy.labels, noise on the labels themselves, goes with every protocol"),
    ]  # fmt: skip


def _has(result: ProtocolResults, key: str) -> bool:
    return key in result.contract.config.model_fields


def _sums_alone(result: ProtocolResults) -> bool:
    """Excludes VFedMH, whose parties show their predictions, and protocols that share labels."""
    able = result.name == "fedvs" or _has(result, "aggregate")
    return able and result.name != "vfedmh" and not result.contract.exchange.shares_labels
