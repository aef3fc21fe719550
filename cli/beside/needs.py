"""Which protocol for which need, as the numbers have it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cli.beside.lane import Lane
from cli.beside.leaks import rebuilt_share
from cli.beside.plan import OWN, PLAIN, Unit
from cli.beside.table import amount

GOOD = 90.0
"""Per cent of test rows that a protocol must get right to be named for anything but accuracy under noise."""

_FEW = 3
_ALL = 0.98  # of the labels; whoever names more has them
_UNITS: tuple[tuple[Unit, str], ...] = (("client", "a party's whole data"), ("row", "a row's embeddings"))


@dataclass(frozen=True)
class Need:
    """A need, and who serves it.

    Args:
        need: in words.
        best: the names of protocols, the first first.
        why: what the numbers say.
    """

    need: str
    best: Sequence[str]
    why: str


def needs(lanes: Sequence[Lane], epsilons: Sequence[float]) -> list[Need]:
    """All of them; those that nothing was measured for are left out."""
    free = [lane for lane in lanes if not lane.entry.reference]
    good = [lane for lane in free if lane.accuracy >= GOOD]
    found = [
        _ranked("the most accurate", free, lambda one: -one.accuracy, lambda one: f"{one.accuracy:.1f} %"),
        _ranked("fewest bytes to 95 %", good, lambda one: one.mean(PLAIN, "mb@95"),
                lambda one: f"{amount(one.mean(PLAIN, 'mb@95'))} MB"),
        _ranked("fewest rounds to 95 %", good, lambda one: one.mean(PLAIN, "rounds@95"),
                lambda one: amount(one.mean(PLAIN, "rounds@95"), digits=0)),
        _ranked("fastest with stragglers", good, lambda one: one.fastest[1], _in_seconds),
        *(_under(unit, about, each, free) for unit, about in _UNITS for each in epsilons),
        _ranked("fewest labels named beyond chance", [lane for lane in good if lane.named[0] < _ALL],
                lambda one: one.named[0] - one.named[1],
                lambda one: f"{one.named[0]:.0%}, by chance {one.named[1]:.0%}"),
        _ranked("least rebuilt by the server", good, rebuilt_share,
                lambda one: f"{rebuilt_share(one):.0%} of the variance"),
    ]  # fmt: skip
    return [*(need for need in found if need is not None), *_by_nature(lanes)]


def _ranked(need: str, lanes: Sequence[Lane], key: Callable[[Lane], float], say: Callable[[Lane], str]) -> Need | None:
    ranked = sorted((lane for lane in lanes if math.isfinite(key(lane))), key=key)[:_FEW]
    if not ranked:
        return None
    return Need(need, [lane.name for lane in ranked], ", ".join(f"{lane.name} {say(lane)}" for lane in ranked))


def _under(unit: Unit, about: str, epsilon: float, lanes: Sequence[Lane]) -> Need | None:
    need = f"epsilon {epsilon:g} of {about}"
    return _ranked(need, lanes, lambda one: -one.under(unit, epsilon), lambda one: f"{one.under(unit, epsilon):.1f} %")


def _in_seconds(lane: Lane) -> str:
    way, seconds = lane.fastest
    return f"{amount(seconds, digits=0)} s ({lane.entry.way if way == OWN else 'waiting for all'})"


def _by_nature(lanes: Sequence[Lane]) -> list[Need]:
    """What a protocol can do by its making, rather than by its numbers."""

    def able(test: Callable[[Lane], bool]) -> list[str]:
        return [lane.name for lane in lanes if not lane.entry.reference and test(lane)]

    def has(lane: Lane, key: str) -> bool:
        return key in lane.contract.config.model_fields

    return [
        Need("the server sees sums alone", able(lambda one: one.name == "fedvs" or has(one, "aggregate")),
             "fedvs by a code; the others with aggregate: blinded, which was measured of vfedmh alone"),
        Need("parties come when they like", able(lambda one: one.name == "zoo_vfl" or has(one, "arrivals")),
             "arrivals: true; zoo_vfl always"),
        Need("every party a whole model of its own", able(lambda one: one.name == "vfedmh"),
             "own architecture, head and optimiser; in the others bottom models may differ as well, behind embeddings "
             "or logits of one width"),
        Need("noise on what goes back, for the labels", able(lambda one: one.contract.answers_protected),
             "server.privacy.answers; server.privacy.labels goes with every protocol whose labels stay at the server"),
    ]  # fmt: skip
