"""Protocols or runs in a comparison: values with their errors, costs and protection."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.text import plain
from colonnade.reports.console.progress import JUDGED
from colonnade.reports.decision import confusion_of

SHARES = ("accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "r2", "ks", "gain")
"""Metrics of which a hundredth is a point."""

_NAMES: Mapping[str, str] = {**JUDGED, "rmse": "RMSE", "mae": "MAE", "r2": "R2", "ece": "ECE"}
_SURE = 1.96  # standard errors of half of a 95% interval
_HUGE = 100.0  # an R2 as low as -100 is shown with fewer digits

T = TypeVar("T")
Kind = Literal["nothing", "sums only", "encryption", "differential privacy"]


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error, None where none is known."""

    value: float
    error: float | None = None

    @property
    def half(self) -> float | None:
        """Half of the 95% interval."""
        return None if self.error is None else _SURE * self.error

    def differs(self, other: Estimate) -> bool:
        """True if the difference is larger than its 95% interval; without errors, if there is a difference.

        Errors count as independent, which is conservative for common rows.
        """
        return abs(self.value - other.value) > self.half_of_difference(other)

    def half_of_difference(self, other: Estimate) -> float:
        """Half of the 95% interval of the difference; without errors 0."""
        return _SURE * math.hypot(self.error or 0.0, other.error or 0.0)


def estimated(value: float, summary: Mapping[str, Any], part: str, metric: str) -> Estimate:
    """A value with its standard error, from the confusion matrix; of an AUC as if scores were exponential."""
    table = confusion_of(summary, part)
    totals = [sum(row) for row in table]
    if metric == "accuracy" and any(totals):
        return Estimate(value, math.sqrt(value * (1 - value) / sum(totals)))
    if not table or not all(totals):
        return Estimate(value)
    recalls = [row[at] / total for at, (row, total) in enumerate(zip(table, totals, strict=True))]
    if metric == "balanced_accuracy":
        spread = sum(recall * (1 - recall) / total for recall, total in zip(recalls, totals, strict=True))
        return Estimate(value, math.sqrt(spread) / len(table))
    return Estimate(value, _of_auc(value, *totals) if metric == "auc" and len(totals) == 2 else None)


def _of_auc(value: float, others: int, ones: int) -> float:
    """Hanley and McNeil (1982)."""
    above, below = value / (2 - value) - value**2, 2 * value**2 / (1 + value) - value**2
    return math.sqrt((value * (1 - value) + (ones - 1) * above + (others - 1) * below) / (ones * others))


@dataclass(frozen=True)
class Measure:
    """A metric in words; `up` is True if more of it is better."""

    metric: str
    up: bool = True

    @property
    def name(self) -> str:
        return _NAMES.get(self.metric, self.metric.replace("_", " "))

    @property
    def title(self) -> str:
        return self.name[:1].upper() + self.name[1:]

    def better(self, one: float, other: float) -> bool:
        return one > other if self.up else one < other

    def best(self, some: Iterable[T], value: Callable[[T], float]) -> T:
        """The one with the best value, the first of equals."""
        return (max if self.up else min)(some, key=value)

    def say(self, value: float | None) -> str:
        """`91.2%` for accuracies, `0.912` for other shares, four digits for values with units."""
        if value is None:
            return "-"
        if "accuracy" in self.metric:
            return f"{100 * value:.1f}%"
        return f"{value:.3f}" if self.metric in SHARES and abs(value) < _HUGE else plain(value)

    def said(self, found: Estimate | None) -> str:
        """The value with half of its 95% interval: `0.912 ± 0.008`."""
        if found is None:
            return "-"
        if not found.half or abs(found.value) >= _HUGE:
            return self.say(found.value)
        value, half = self.say(found.value), self.say(found.half)
        return f"{value.removesuffix('%')} ± {half}"

    def gap(self, improvement: float | None) -> str:
        """An improvement with its sign, in points for shares."""
        if improvement is None:
            return "-"
        points = self.metric in SHARES and abs(improvement) < 100 * _HUGE
        return f"{improvement:+.1f} points" if points else f"{improvement:+.3g}"


@dataclass(frozen=True)
class Protection:
    """The protection of the parties' columns in training: the strongest kind, and all of them in words."""

    kind: Kind
    words: str

    @property
    def colour(self) -> int:
        """Colour number in charts."""
        return {"nothing": 2, "sums only": 1, "encryption": 3, "differential privacy": 4}[self.kind]

    @classmethod
    def of(cls, protocol: str, keys: Mapping[str, Any], *, noise: str = "", guaranteed: bool = True) -> Protection:
        """By the protocol's contract and the keys that it ran with.

        Args:
            keys: those of `federation.protocol`.
            noise: in words, "" for none; without a guarantee it does not count.
        """
        contract = CONTRACTS.get(protocol)
        if contract is None:
            return cls("nothing", "not known here")
        own, found = contract.exchange, dict[Kind, str]()
        if noise and guaranteed:
            found["differential privacy"] = noise
        if own.returns in ("sums", "questions") and keys.get("gradients", "encrypted") == "encrypted":
            found["encryption"] = "encryption"
        if own.sums_alone or keys.get("aggregate") == "blinded":
            found["sums only"] = "sums only"
        words = [*found.values(), *([noise] if noise and not guaranteed else [])]
        words = (words or ["in the clear"]) + (["parties get the labels"] if own.shares_labels else [])
        return cls(next(iter(found), "nothing"), ", ".join(words))


def is_reference(protocol: str) -> bool:
    """True if the protocol shares everything or nothing, so that others are compared with it."""
    contract = CONTRACTS.get(protocol)
    return contract is not None and contract.exchange.sends in ("columns", "nothing")


@dataclass(frozen=True)
class Contender:
    """A protocol, a run or a reference.

    Args:
        protocol: by name; "" for a reference.
        test, validation: its value on these rows; None if there is none.
        sent: bytes of training.
        cause: why it is excluded, such as an error; "" if it is compared.
        reference: True for a reference, such as a model of all tables pooled.
    """

    name: str
    protocol: str = ""
    about: str = ""
    test: Estimate | None = None
    validation: Estimate | None = None
    sent: float | None = None
    seconds: float | None = None
    epsilon: float | None = None
    protection: Protection = Protection("nothing", "in the clear")
    cause: str = ""
    reference: bool = False

    @property
    def stands(self) -> bool:
        """True if it can be compared with others."""
        return self.test is not None and not self.cause and not self.reference

    @property
    def gives_labels(self) -> bool:
        """True if parties receive the labels: such a protocol is recommended only if there is no other."""
        contract = CONTRACTS.get(self.protocol)
        return contract is not None and contract.exchange.shares_labels

    def sees(self, role: str) -> str:
        """The data that reach the server, or a party."""
        contract = CONTRACTS.get(self.protocol)
        return "not known here" if contract is None else contract.sees.get(role, "nothing")
