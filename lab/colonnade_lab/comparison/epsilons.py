"""Delta and unit of the epsilons of runs with noise: no epsilon is shown without them."""

from __future__ import annotations

from collections.abc import Mapping

from colonnade.common.config.federation import FederationConfig
from colonnade.common.parsing.file import load
from colonnade.common.privacy.accounting.accountant import epsilon, find_noise_multiplier
from colonnade_lab.comparison.plan import UNITS, ComparisonPlan, Unit, noisy

ABOUT: Mapping[Unit, str] = {"client": "a party's whole data", "row": "a row's own embeddings"}


def deltas(plan: ComparisonPlan) -> dict[Unit, float]:
    """Delta by unit, for units in which a protocol was run with noise."""
    return {unit: agreed.privacy.delta for unit, agreed in _agreed(plan).items() if agreed.privacy is not None}


def at(unit: Unit, value: float, found: Mapping[Unit, float]) -> str:
    """An epsilon with its delta and unit, as far as known."""
    return f"epsilon {value:g}" + (f", delta {found[unit]:g}," if unit in found else "")


def in_words(plan: ComparisonPlan) -> list[str]:
    """Explains the epsilons, in one or two sentences per unit."""
    agreed = _agreed(plan)
    said = []
    if "client" in agreed:
        said.append(_of_a_person(agreed["client"], plan.epsilons))
    if "row" in agreed and (privacy := agreed["row"].privacy) is not None and privacy.unbounded:
        said.append(
            f"An epsilon of a row's own embeddings (delta {privacy.delta:g}) is of all that one party releases of the "
            "row, with the models that make them held fixed. Steps had no noise, so that it is no guarantee for a row: "
            "a row moves the models, and by them the embeddings of all other rows."
        )
    return said


def _agreed(plan: ComparisonPlan) -> dict[Unit, FederationConfig]:
    """Privacy section for each unit's noise, taken from the first protocol that has one: only rates differ."""
    found: dict[Unit, FederationConfig] = {}
    for unit in UNITS:
        name = next((name for name, entry in plan.protocols.items() if entry.noise(unit) is not None), None)
        if name is not None:
            run = plan.conditions(name)[noisy(unit, plan.epsilons[0])]
            found[unit] = load(run.path, run.set).federation
    return found


def _of_a_person(agreed: FederationConfig, epsilons: tuple[float, ...]) -> str:
    """Converts a party's epsilon to a person's: over all parties' releases, between two values of the person's row."""
    privacy, parties = agreed.privacy, len(agreed.names)
    assert privacy is not None  # runs with noise have it
    persons = []
    for each in epsilons:
        sigma = find_noise_multiplier(each, privacy.delta, 1, privacy.adjacency, privacy.accounting)
        persons.append(f"{epsilon(parties, sigma, privacy.delta, 'replace'):.3g}")
    neighbours = "a party absent" if privacy.adjacency == "participation" else "other data"
    return (
        f"An epsilon of a party's whole data (delta {privacy.delta:g}; {neighbours}; {privacy.accounting} accounting) "
        f"is of one party. For a person whose row lies at all {parties} parties {', '.join(persons)} stand in the "
        f"place of {', '.join(f'{each:g}' for each in epsilons)}, at the same delta (other data; exact accounting)."
    )
