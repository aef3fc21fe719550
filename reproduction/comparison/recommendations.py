"""Which protocol for which need, as the numbers have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from colonnade.reproduction.comparison.epsilons import ABOUT, at
from colonnade.reproduction.comparison.leaks import rebuilt_share
from colonnade.reproduction.comparison.plan import OWN, PLAIN, UNITS, Unit
from colonnade.reproduction.comparison.protocol_results import ProtocolResults
from colonnade.reproduction.comparison.table import amount

GOOD = 90.0
"""Per cent of test rows that a protocol must get right to be named for anything but being the most accurate."""

_FEW = 3
_VOID: Mapping[Unit, str] = {"client": "", "row": ": no guarantee for a row"}
_ALL = 0.98  # of the labels; whoever names more has them
_UNKNOWN: Mapping[Unit, float] = MappingProxyType({})
_ASKED: Mapping[Unit, str] = {
    "client": " when asked without the noise; asked with it, those that were tried answered by chance",
    "row": "",
}
"""What an accuracy under noise hides: all were asked without it, and with noise on a whole party nothing is left."""


@dataclass(frozen=True)
class Need:
    """A need, and who serves it.

    Args:
        need: in words.
        best: the names of protocols, the first first; empty if none serves.
        why: what the numbers say.
    """

    need: str
    best: Sequence[str]
    why: str

    @property
    def take(self) -> str:
        """Who serves it, in words."""
        return ", ".join(self.best) or "none"


def needs(
    lanes: Sequence[ProtocolResults], epsilons: Sequence[float], deltas: Mapping[Unit, float] = _UNKNOWN
) -> list[Need]:
    """All of them; those that nothing was measured for are left out.

    Who sends the labels to parties is named for no protection, whatever its numbers.

    Args:
        lanes: what was found.
        epsilons: of the runs with noise.
        deltas: that those are at, by unit.
    """
    free = [lane for lane in lanes if not lane.entry.reference]
    good = [lane for lane in free if lane.accuracy >= GOOD]
    discreet = [lane for lane in free if not lane.contract.shares_labels]
    both = [lane for lane in good if lane in discreet]
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
        _ranked("least rebuilt by the server", both, rebuilt_share,
                lambda one: f"{rebuilt_share(one):.0%} of the variance"),
    ]  # fmt: skip
    return [*(need for need in found if need is not None), *_by_nature(free)]


def _ranked(
    need: str,
    lanes: Sequence[ProtocolResults],
    key: Callable[[ProtocolResults], float],
    say: Callable[[ProtocolResults], str],
    serves: Callable[[ProtocolResults], bool] = lambda _lane: True,
) -> Need | None:
    """The first few that serve; if none does, nobody, and what the first came to. Nothing if nothing was measured."""
    ranked = sorted((lane for lane in lanes if math.isfinite(key(lane))), key=key)
    if not ranked:
        return None
    best = [lane for lane in ranked if serves(lane)][:_FEW]
    if not best:
        return Need(need, (), f"at best {ranked[0].name} {say(ranked[0])}")
    return Need(need, [lane.name for lane in best], ", ".join(f"{lane.name} {say(lane)}" for lane in best))


def _under(unit: Unit, need: str, epsilon: float, lanes: Sequence[ProtocolResults]) -> Need | None:
    return _ranked(
        need,
        lanes,
        lambda one: -one.under(unit, epsilon),
        lambda one: f"{one.under(unit, epsilon):.1f} %{_ASKED[unit]}",
        serves=lambda one: unit == "row" and one.under(unit, epsilon) >= GOOD,
    )


def _in_seconds(lane: ProtocolResults) -> str:
    way, seconds = lane.fastest
    return f"{amount(seconds, digits=0)} s ({lane.entry.way if way == OWN else 'waiting for all'})"


def _by_nature(lanes: Sequence[ProtocolResults]) -> list[Need]:
    """What a protocol can do by its making, rather than by its numbers."""

    def able(test: Callable[[ProtocolResults], bool]) -> list[str]:
        return [lane.name for lane in lanes if test(lane)]

    return [
        Need("the server sees sums alone", able(_sums_alone),
             "fedvs by a code, its answers masked, the others with aggregate: blinded; neither was measured here; "
             "vfedmh shows the server sums of embeddings, and each party's predictions"),
        Need("parties come when they like", able(lambda one: one.name == "zoo_vfl" or _has(one, "arrivals")),
             "arrivals: true; zoo_vfl always"),
        Need("every party a whole model of its own", able(lambda one: one.name == "vfedmh"),
             "own architecture, head and optimiser; in the others bottom models may differ as well, behind embeddings "
             "or logits of one width"),
        Need("noise on what goes back, for the labels", able(lambda one: one.contract.response_noise),
             "server.privacy.answers; server.privacy.labels, noise on the labels themselves, goes with every protocol"),
    ]  # fmt: skip


def _has(lane: ProtocolResults, key: str) -> bool:
    return key in lane.contract.config.model_fields


def _sums_alone(lane: ProtocolResults) -> bool:
    """VFedMH's parties show what they predict as well, and who sends labels around hides little."""
    able = lane.name == "fedvs" or _has(lane, "aggregate")
    return able and lane.name != "vfedmh" and not lane.contract.shares_labels
