"""`mechanism: discrete`: one released code per row: its plan (the encoder's noise, and both mechanisms) and its
release.

A row's code leaves as a random set of codes, the same set at every request.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from colonnade.common.config.privacy import Adjacency, DiscretePrivacyConfig
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.messaging.outgoing import Released
from colonnade.common.privacy.accounting.accountant import Event
from colonnade.common.privacy.accounting.plan import PrivacyPlan, Span, refuse_large_delta
from colonnade.common.privacy.accounting.sampled import SampledGaussian, find_noise
from colonnade.common.privacy.laplace import Bits, discrete_laplace
from colonnade.common.privacy.subsets import SubsetSelection

_find_noise = lru_cache(find_noise)  # a second or two, and the same at every member of a process


@dataclass(frozen=True)
class DiscretePlan(PrivacyPlan):
    """A plan with one release: a row's code, and its part in the encoder before.

    Args:
        encoder: DP-SGD of a party's encoder; its noise multiplier is the plan's.
        codes: k.
        classes: C.
        train: numbers of the training rows, int64 (m,).
    """

    config: DiscretePrivacyConfig
    encoder: SampledGaussian = field(kw_only=True)
    codes: int = field(kw_only=True)
    classes: int = field(kw_only=True)
    train: Tensor = field(kw_only=True, compare=False)

    @cached_property
    def training(self) -> SubsetSelection:
        return self._mechanism(self.config.of_training)

    @cached_property
    def held_out(self) -> SubsetSelection:
        """The mechanism of all other rows' codes."""
        return self._mechanism(self.config.of_held_out)

    def _mechanism(self, epsilon: float) -> SubsetSelection:
        size = self.config.size
        return SubsetSelection.best(self.codes, epsilon) if size is None else SubsetSelection(self.codes, size, epsilon)

    @cached_property
    def of_encoder(self) -> float:
        """The encoder's epsilon, at most the configured one."""
        return self.encoder.epsilon(self.config.delta)

    @cached_property
    def counts(self) -> CountNoise | None:
        """The mechanism of noisy counts; None without."""
        return None if self.config.counts is None else CountNoise(self.config.counts)

    @property
    def of_counts(self) -> float:
        """Epsilon of noisy counts; 0 without counts."""
        return 0.0 if self.counts is None else self.counts.epsilon

    def _events(self, parties: int) -> tuple[Event, Event]:
        """Events at this number of parties, of a training row and of any other: codes add up."""
        trained = replace(self.encoder, steps=parties * self.encoder.steps)
        codes = parties * (self.of_counts + self.training.epsilon)
        return Event(steps=trained, pure=codes), Event(pure=parties * self.held_out.epsilon)

    def epsilon(self, releases: float, adjacency: Adjacency | None = None) -> float:  # noqa: ARG002
        """Epsilon of a row at a party, the larger of a training row's and any other's; 0 before any release."""
        return self.person_epsilon([releases])

    def person_epsilon(self, releases: Iterable[float]) -> float:
        """Epsilon of a person with a row at each party, at the same delta."""
        if not (parties := sum(1 for count in releases if count)):
            return 0.0
        return max(event.epsilon(self.config.delta) for event in self._events(parties))

    def within(self, budget: float, adjacency: Adjacency | None = None) -> int:  # noqa: ARG002
        """1 if a budget pays for the plan, which is all or nothing; else 0."""
        return int(self.epsilon(1) <= budget)

    @property
    def derived(self) -> bool:
        """False: the encoder's noise follows from its own steps, not from the run's length."""
        return False

    @property
    def deviation(self) -> float:
        """Codes have no noise in their entries."""
        return 0.0

    @property
    def in_words(self) -> str:
        """The cost of a training row, and of any other."""
        counts = "" if self.counts is None else f", counts {self.of_counts:.2f}"
        return (
            f"a training row: encoder {self.of_encoder:.2f}{counts}, one of {self.codes} codes "
            f"{self.training.epsilon:.2f}; any other: its code {self.held_out.epsilon:.2f}; each code once"
        )

    def summary(self) -> dict[str, Any]:
        return {
            "codes": self.codes,
            "set_size": self.training.size,
            "encoder_epsilon": round(self.of_encoder, 6),
            "code_epsilon": round(self.training.epsilon, 6),
            "held_out_epsilon": round(self.held_out.epsilon, 6),
            "about": "a training row's part in the encoder and its one code, or the one code of any other row",
        }

    @classmethod
    def of(cls, config: DiscretePrivacyConfig, run: Span) -> Self:
        """Finds the noise of the encoder's steps; no budget shortens the run.

        Raises ConfigError if delta is too large for the rows, there are more codes than training rows, or no noise is
        enough.
        """
        codes, train = config.count(run.classes, run.parties), run.train
        refuse_large_delta(config.delta, run.rows, benchmark=run.benchmark)
        if codes > len(train):
            raise ConfigError(
                f"federation.privacy.codes = {codes}: more than the {len(train)} training rows that they are known by",
                hint="give fewer codes, or more rows",
            )
        if config.counts is not None and codes >= run.classes:
            raise ConfigError(
                f"federation.privacy.counts = {config.counts:g} with {codes} codes for {run.classes} classes: no "
                "groups",
                hint="leave counts out, or give fewer codes than classes",
            )
        steps, drawn = run.draws
        rate = min(1.0, drawn / len(train))
        try:
            sigma = _find_noise(config.of_encoder, config.delta, rate, steps)
            _ = SubsetSelection(codes, config.size or 1, config.of_training)
        except InputError as wrong:
            raise ConfigError(f"federation.privacy: {wrong}", hint=wrong.hint) from None
        return cls(
            config, sigma, run.rounds, 1, None, run.rows, encoder=SampledGaussian(rate, sigma, steps), codes=codes,
            classes=run.classes, train=train.to(torch.int64),
        )  # fmt: skip


def as_codes(plan: PrivacyPlan | None) -> DiscretePlan | None:
    """The plan, if rows are released as codes under it."""
    return plan if isinstance(plan, DiscretePlan) else None


_SENSITIVITY = 2  # in the L1 norm


@dataclass(frozen=True)
class CountNoise:
    asked: float

    @property
    def scale(self) -> int:
        """b, rounded up: never less noise than configured."""
        return math.ceil(_SENSITIVITY / self.asked)

    @property
    def epsilon(self) -> float:
        """Epsilon of a training row, at most the configured one."""
        return _SENSITIVITY / self.scale

    def draw(self, labels: Tensor, named: Tensor, classes: int, bits: Bits) -> Tensor:
        """Counts with noise, int64 (classes, classes).

        Args:
            labels: classes of the rows, int64 (rows,).
            named: classes that the encoder predicts, int64 (rows,).
        """
        cells = torch.bincount(labels * classes + named, minlength=classes**2)
        noise = torch.from_numpy(discrete_laplace(classes**2, self.scale, bits))
        return (cells + noise).reshape(classes, classes)


class Sets(Protocol):
    """Draws of rows' codes, one per row."""

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """The sets of rows int64 (n,) with codes int64 (n,): membership as 1 and 0, float64 (n, k)."""


class SeededSets:
    """Reproducible draws from a seed, for tests.

    Args:
        bits: rows -> their source of randomness.
    """

    def __init__(self, mechanism: SubsetSelection, bits: Callable[[Tensor], Bits]) -> None:
        self._mechanism, self._bits = mechanism, bits

    def release(self, rows: Tensor, codes: Tensor) -> Tensor:
        """As `Sets`: the same rows get the same sets."""
        return self._mechanism.draw(codes, self._bits(rows))


class CodeRelease:
    """Releases codes. The mechanism depends only on the row, not on the purpose of the request.

    Args:
        training: draws of training rows.
        held_out: draws of all others.
        pay: called before a set leaves; returns the number of paid releases.
        counts: noisy counts of the encoder's classes, if the plan has them.
    """

    def __init__(
        self,
        plan: DiscretePlan,
        training: Sets,
        held_out: Sets,
        rows: int,
        pay: Callable[[], float],
        counts: Callable[[], Tensor] | None = None,
    ) -> None:
        self._plan, self._training, self._held_out, self._pay = plan, training, held_out, pay
        self._counts = counts
        self._trains = torch.zeros(rows, dtype=torch.bool)
        self._trains[plan.train] = True
        seeded = " seeded" if plan.config.seeded else ""
        self._name = f"subset {plan.training.size} of {plan.codes}, once a row{seeded}"

    def __call__(
        self,
        private: Tensor,
        *,
        evaluation: bool = False,  # noqa: ARG002  # part of the interface
        rows: Tensor | None = None,
    ) -> Released:
        """Releases codes, given as 1 in the column of each row's code; without rows the counts, drawn before.

        Args:
            private: (n, k); for the counts any int64 (classes, classes), of which nothing leaves.
            rows: the rows' numbers, int64 (n,), each once.

        Raises:
            InputError: row numbers are missing, or the number of codes differs from the plan.
            CheckpointError: earlier draws are lost.
            BudgetSpent: the encoder was not paid for.
        """
        if rows is None and self._counts is not None and self._plan.counts is not None and private.dtype == torch.int64:
            epsilon = None if self._plan.void else self._plan.epsilon(self._pay())
            return Released(self._counts().clone(), f"laplace {self._plan.counts.scale}, counts", epsilon)
        if rows is None or private.shape != (len(rows), self._plan.codes):
            raise InputError(
                f"codes {tuple(private.shape)}: expected one of {self._plan.codes} a row, and the numbers of the rows"
            )
        rows, codes = rows.cpu(), private.detach().cpu().argmax(1)
        spent, found = self._pay(), torch.zeros(private.shape, dtype=torch.float64)
        trains = self._trains[rows]
        for sets, some in ((self._training, trains), (self._held_out, ~trains)):
            if some.any():
                found[some] = sets.release(rows[some], codes[some])
        epsilon = None if self._plan.void else self._plan.epsilon(spent)
        return Released(found.to(private.device, private.dtype), self._name, epsilon)
