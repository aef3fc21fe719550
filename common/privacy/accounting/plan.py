"""Plans of the mechanisms of `federation.privacy`: noise, rounds within a budget, and privacy cost.

Sentences state the plan before anything is sent: no noise multiplier without its epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from colonnade.common.config.privacy import Adjacency, AnyPrivacyConfig
from colonnade.common.errors import ConfigError
from colonnade.common.privacy.accounting.accountant import (
    SENSITIVITY,
    Event,
    find_noise_multiplier,
    most_releases,
    stated_releases,
)
from colonnade.common.run.state import State

SEEDED = "noise was drawn from the federation's seed, which every member knows"


@dataclass(frozen=True)
class Span:
    """Properties of a run that determine a plan.

    Args:
        releases: function of rounds: releases of one party (or row) in a run of that length, evaluations included.
        steps: most steps of a party after a release.
        present: fewest parties in a sum, with noise once.
        benchmark: True if the data are public, so that delta may be as in a paper.
        train: numbers of the training rows, int64 (m,).
        draws: training steps of linear encoders, and expected rows per step.
        classes: C.
    """

    rows: int
    rounds: int
    releases: Callable[[int], int]
    steps: int = 1
    present: int = 1
    benchmark: bool = False
    train: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    draws: tuple[int, int] = (1, 1)
    classes: int = 0
    parties: int = 1


@dataclass(frozen=True)
class PrivacyPlan:
    """A planned mechanism, derived identically at the server and at every party. Each mechanism is a subclass.

    Args:
        noise_multiplier: sigma.
        rounds: maximum number of rounds.
        releases: maximum per party in these rounds; with row protection, per row.
        affordable: releases within the budget; None without a budget.
        predictions: releases reserved for predictions, in addition to `releases`.
        present: with noise once, the fewest parties in a sum; 1 if every party adds all of the noise.
        own: planned releases of a party, where its own number is known.
    """

    config: AnyPrivacyConfig
    noise_multiplier: float
    rounds: int
    releases: int
    affordable: int | None
    rows: int = 0
    predictions: int = 0
    present: int = 1
    own: Mapping[str, int] = field(default_factory=dict, kw_only=True, compare=False)

    @classmethod
    def of(cls, config: Any, run: Span) -> Self:
        """Finds sigma if only a budget is given, and the rounds within a budget.

        Raises ConfigError if delta is too large for the number of rows, or the budget does not allow one round.
        """
        refuse_large_delta(config.delta, run.rows, benchmark=run.benchmark)
        wanted = min(run.rounds, config.rounds or run.rounds)
        sigma, budget = cls._sigma(config), config.epsilon
        least = 1 if config.once is None else config.once.present or run.present
        made = cls(
            config, sigma or 1.0, wanted, run.releases(wanted), None, run.rows, config.predictions, least,
            **cls._more(config, wanted * run.steps),
        )  # fmt: skip
        if sigma is None:
            made = replace(made, noise_multiplier=made._find_noise(budget))
        if budget is None:
            return made
        allowed = made.within(budget, config.adjacency)
        paid = _paid(wanted, allowed - config.predictions, run.releases)
        if paid == 0:
            kept = f"; {config.predictions} are kept for predictions" if config.predictions else ""
            raise ConfigError(
                f"federation.privacy.epsilon = {budget:g}: at noise_multiplier = {made.noise_multiplier:g} it pays for "
                f"{allowed} releases, and a run of one round makes {run.releases(1)}, its evaluations among them{kept}",
                hint="leave noise_multiplier out, so that it is found from epsilon; or give a larger epsilon, a larger "
                "batch or smaller test parts",
            )
        return replace(made, rounds=paid, releases=run.releases(paid), affordable=allowed)

    @property
    def derived(self) -> bool:
        """True if sigma follows from the budget, so that another length of the run has another."""
        return self._sigma(self.config) is None

    @staticmethod
    def _sigma(config: Any) -> float | None:
        """The noise multiplier, unless it follows from a budget over the whole run."""
        found: float | None = config.noise_multiplier
        return found

    @staticmethod
    def _more(config: Any, steps: int) -> dict[str, Any]:  # noqa: ARG004
        """Further fields of the mechanism; `steps` is the party's number in the run."""
        return {}

    def _find_noise(self, budget: float) -> float:
        config = self.config
        return find_noise_multiplier(budget, config.delta, self.most, config.adjacency, config.accounting)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in every entry; with noise once, the minimum of a sum's."""
        raise NotImplementedError

    @property
    def largest(self) -> float:
        """The largest norm of a released matrix, or row, before its noise."""
        return self.config.clip

    @property
    def honest(self) -> int:
        """Parties whose noise shares every sum needs for the guarantee; 1 without noise once."""
        return self.present if self.config.once is None else self.present - self.config.once.colluders

    @property
    def gain(self) -> float:
        """Factor by which noise once reduces the noise of sums: a party's full noise over that of its share."""
        return math.sqrt(self.honest)

    @property
    def void(self) -> str | None:
        """Reason why the accounting's epsilon is not a guarantee; None if it is."""
        if self.config.heuristic:
            return self.config.heuristic
        if self.config.seeded:
            return SEEDED
        if self.config.evaluate == "clean":
            return "evaluations left in the clear (benchmark); the accounting is of the training rounds alone"
        return self.config.unbounded or None

    @property
    def in_words(self) -> str:
        """The number of releases and its reason: a row is in one batch per epoch, a party in every round."""
        of_what = " of a row, which is in one batch of an epoch," if self.strict == "row" else ""
        kept = f" and {self.predictions} for predictions" if self.predictions else ""
        released = f"{self.releases} releases{of_what} in {self.rounds} rounds{kept}{self._steps_in_words}"
        return f"{released}, noise multiplier {self.noise_multiplier:g}"

    @property
    def _steps_in_words(self) -> str:
        return ""

    @property
    def most(self) -> int:
        """Maximum number of releases of one party (or row) in training and in predictions."""
        return self.releases + self.predictions

    def planned(self, party: str) -> int:
        """Maximum number of a party's releases in training."""
        return self.own.get(party, self.releases)

    def stated(self, party: str, made: float) -> float:
        """Releases that the party's epsilon counts, once it has made so many (`stated_releases`)."""
        return stated_releases(made, self.planned(party), self.affordable)

    @property
    def spent_by_training(self) -> bool:
        """True if training may use up the budget, with no release left for a prediction."""
        return self.affordable is not None and self.affordable <= self.releases

    @property
    def strict(self) -> Adjacency:
        """Adjacency for replaced data, independent of the agreed one: `row` or `replace`."""
        return "row" if self.config.adjacency == "row" else "replace"

    @property
    def neighbours(self) -> tuple[Adjacency, ...]:
        return ("row",) if self.config.adjacency == "row" else ("participation", "replace")

    def summary(self) -> dict[str, Any]:
        """Further entries of a run's summary: with noise once the parties of a sum, and the saving of noise."""
        if self.config.once is None:
            return {}
        return {"present": self.present, "colluders": self.config.once.colluders, "gain": round(self.gain, 6)}

    def shaped(self, model: nn.Module, state: State, device: torch.device) -> nn.Module:  # noqa: ARG002
        """A party's bottom model, whose outputs the mechanism can release."""
        return model

    def event(self, releases: float, adjacency: Adjacency | None = None) -> Event:
        """The event of a number of releases; under the agreed adjacency by default."""
        return Event(releases, self.noise_multiplier, SENSITIVITY[adjacency or self.config.adjacency])

    def person_event(self, releases: list[float]) -> Event:
        """The event of all parties' releases for a person with a row at each of them.

        They are Gaussian releases of one person's data, so the counts of all parties add up. With noise once, n parties
        of a sum move it n times as far as one, against n shares of the noise: each release counts `honest` times.
        """
        return self.event(self.honest * sum(releases), self.strict)

    def epsilon(self, releases: float, adjacency: Adjacency | None = None) -> float:
        """Epsilon of a number of releases; under the agreed adjacency by default."""
        return self.event(releases, adjacency).epsilon(self.config.delta, self.config.accounting)

    def person_epsilon(self, releases: Iterable[float]) -> float:
        """Epsilon of all parties' releases for a person with a row at each of them."""
        return self.person_event(list(releases)).epsilon(self.config.delta, self.config.accounting)

    def within(self, budget: float, adjacency: Adjacency | None = None) -> int:
        """Number of releases within an epsilon; by default between two data sets, or two values of a row."""
        event = self.event(1, adjacency or self.strict)
        return most_releases(event, budget, self.config.delta, self.config.accounting)


def refuse_large_delta(delta: float, rows: int, *, benchmark: bool) -> None:
    """Refuses a delta that would let rows be published at random. Raises ConfigError."""
    if delta >= 1 / rows and not benchmark:
        raise ConfigError(
            f"federation.privacy.delta = {delta:g}: with {rows} rows it must be below "
            f"1/{rows} = {1 / rows:.2g}, or publishing a row at random would count as private",
            hint="give a smaller delta, a tenth of 1 / rows is usual; or, if the data hold no secrets, set "
            "federation.benchmark to true",
        )


def _paid(rounds: int, allowed: int, releases: Callable[[int], int]) -> int:
    """The largest number of rounds with at most the allowed releases; releases never decrease with rounds."""
    low, high = 0, rounds + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if releases(middle) <= allowed else (low, middle)
    return low


LITTLE = 20.0  # epsilon above which a guarantee protects little


class Sentence(NamedTuple):
    """A sentence on planned privacy; `weak` if it states that protection is missing or small."""

    text: str
    weak: bool = False


def describe_plan(plan: PrivacyPlan, parties: int, active: str = "") -> list[Sentence]:
    """The guarantees of `federation.privacy` on a run's rows, a sentence each, beginning with that of a person.

    Args:
        plan: the run's, with the maximum releases of a party, or a row.
        active: reason why there is no bound for a person beside the parties' own, or "".
    """
    noise = plan.in_words
    delta = f"delta {plan.config.delta:g}"
    own = plan.epsilon(plan.most, plan.strict)
    person = plan.person_epsilon([plan.most] * parties)
    if plan.strict == "row":
        whose = "a row's own embeddings" if plan.config.unbounded else "a row"
        about = f"{whose} at one party alone: epsilon {own:.2f}"
    else:
        absent = plan.epsilon(plan.most, "participation")
        about = f"one party alone: epsilon {own:.2f} (other data), {absent:.2f} (the party absent)"
    if plan.void:
        reasons = "; ".join(dict.fromkeys(reason for reason in (plan.void, plan.config.unbounded) if reason))
        said = f"no guarantee: {reasons}; by the accounting alone {about} at {delta} ({noise})"
        weak = [*little(own), *large_delta(plan), *_none_left(plan)]
        return [Sentence(said, weak=True), *_once(plan, parties), *weak]
    all_of_them = f"no guarantee ({active})" if active else f"epsilon {person:.2f} at {delta}"
    said = f"a person at all {parties} parties: {all_of_them}; {about} at {delta} ({noise})"
    weak = little(own if active else max(own, person))
    return [Sentence(said, weak=bool(active)), *_once(plan, parties), *weak, *large_delta(plan), *_none_left(plan)]


def _once(plan: PrivacyPlan, parties: int) -> list[Sentence]:
    """A sentence on noise once: the reduction of noise, and against whom it holds."""
    if (once := plan.config.once) is None:
        return []
    against = (
        f"the server and {once.colluders} of them that tell it their noise" if once.colluders else "the server alone"
    )
    said = (
        f"noise once on sums of at least {plan.present} of {parties} parties: {plan.gain:.3g} times less than noise of "
        f"each; it holds against {against}, and rests on the masks of blinded sums"
    )
    return [Sentence(said)]


def _none_left(plan: PrivacyPlan) -> list[Sentence]:
    """A sentence if the budget leaves nothing for predictions."""
    if not plan.spent_by_training:
        return []
    return [Sentence(
        "training may spend the whole budget, and the model then cannot be asked for predictions; "
        "federation.privacy.predictions: 10 keeps ten releases for them", weak=True,
    )]  # fmt: skip


def little(epsilon: float) -> list[Sentence]:
    """A sentence if an epsilon protects little."""
    if epsilon <= LITTLE:
        return []
    said = (
        f"epsilon {epsilon:.2f} is above {LITTLE:g} and protects little: what leaves may make one of two neighbouring "
        f"data sets up to e^{epsilon:.0f} times as likely as the other"
    )
    return [Sentence(said, weak=True)]


def large_delta(plan: PrivacyPlan) -> list[Sentence]:
    """A sentence if delta is too large for the rows, which only `federation.benchmark` allows."""
    delta, rows = plan.config.delta, plan.rows
    if not rows or delta < 1 / rows:
        return []
    said = (
        f"delta {delta:g} is not below 1/{rows} = {1 / rows:.2g}: publishing a row at random would count as private; "
        "it is allowed because federation.benchmark says that the data are not secret"
    )
    return [Sentence(said, weak=True)]
