"""Planned privacy in words, before anything is sent: no noise multiplier without the epsilon that it comes to."""

from __future__ import annotations

from typing import NamedTuple

from colonnade.common.privacy.accounting.plan import PrivacyPlan

LITTLE = 20.0
"""Epsilon above which a guarantee protects little."""


class Sentence(NamedTuple):
    """A sentence on planned privacy.

    Attributes:
        weak: it says that something is not protected, or little.
    """

    text: str
    weak: bool = False


def describe_plan(plan: PrivacyPlan, parties: int, active: str = "") -> list[Sentence]:
    """The guarantees of `federation.privacy` on the rows of a run, a sentence each; that of a person stands first.

    Args:
        plan: of the run; its releases are the most that a party, or a row, makes.
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
    """A sentence about noise that is in a sum once: how much less it is, and against whom it holds."""
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
    """A sentence about a budget of which nothing is left for predictions."""
    if not plan.spent_by_training:
        return []
    return [Sentence(
        "training may spend the whole budget, and the model then cannot be asked for predictions; "
        "federation.privacy.predictions: 10 keeps ten releases for them", weak=True,
    )]  # fmt: skip


def little(epsilon: float) -> list[Sentence]:
    """A sentence about an epsilon that protects little; none about a smaller one."""
    if epsilon <= LITTLE:
        return []
    said = (
        f"epsilon {epsilon:.2f} is above {LITTLE:g} and protects little: what leaves may make one of two neighbouring "
        f"data sets up to e^{epsilon:.0f} times as likely as the other"
    )
    return [Sentence(said, weak=True)]


def large_delta(plan: PrivacyPlan) -> list[Sentence]:
    """A sentence about a delta that is too large for the rows, which only `federation.benchmark` allows."""
    delta, rows = plan.config.delta, plan.rows
    if not rows or delta < 1 / rows:
        return []
    said = (
        f"delta {delta:g} is not below 1/{rows} = {1 / rows:.2g}: publishing a row at random would count as private; "
        "it is allowed because federation.benchmark says that the data are not secret"
    )
    return [Sentence(said, weak=True)]
