"""Plan of the comparison (plans/beside.yaml): every protocol under every condition that it supports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from colonnade.common.config.federation import FederationConfig
from colonnade.common.contracts.registry import CONTRACTS, NAMES, OUTSIDE
from colonnade.common.errors import InputError, nearest
from colonnade.common.messaging.message import PartyMessage, schema
from colonnade.common.parsing.file import load
from colonnade.common.privacy.accounting.accountant import epsilon, find_noise_multiplier
from colonnade.common.section import Section
from colonnade_lab.papers.papers import PLANS, Name, PaperRun, read_list, refuse_all_but_every
from colonnade_lab.papers.running import Job

FILE = PLANS / "beside.yaml"

PLAIN, SLOW, OWN, ATTACKED = "plain", "slow", "own", "attacked"
"""Undisturbed; with stragglers, waiting for all or not; undisturbed, captured and attacked."""

_MINUTES = {PLAIN: 0.06, SLOW: 0.08, OWN: 0.08, ATTACKED: 0.15, "client": 0.02, "row": 0.06}

Unit = Literal["client", "row"]
UNITS: tuple[Unit, ...] = ("client", "row")
"""Unit of an epsilon: all data of a party, or the embeddings of one row."""


def noisy(unit: Unit, epsilon: float) -> str:
    return f"{unit}-{epsilon:g}"


class Entry(Section):
    """Entry of a protocol in the plan.

    Args:
        set: KEY=VALUE on top of the base: the protocol's name and rates.
        late: delays of stragglers, kind of message -> pattern; empty if the protocol sends nothing.
        waits: whether it can wait for all parties; if not, no run does.
        own: KEY=VALUE with which it does not wait for stragglers; if missing, it always waits.
        way: `own` in words.
        client, row: KEY=VALUE with noise of that unit; if missing, the protocol has no such noise.
        note: how it differs from the others.
        reference: the protocol shares everything or nothing and is never recommended.
    """

    set: tuple[str, ...]
    late: dict[str, str] = Field(default_factory=dict)
    waits: bool = True
    own: tuple[str, ...] | None = None
    way: str = ""
    client: tuple[str, ...] | None = None
    row: tuple[str, ...] | None = None
    note: str = ""
    reference: bool = False

    def noise(self, unit: Unit) -> tuple[str, ...] | None:
        return self.client if unit == "client" else self.row


class ComparisonPlan(Section):
    """The whole comparison.

    Args:
        base: federation that all runs start from, below experiments/.
        epsilons: those of the runs with noise.
        client, row: KEY=VALUE of all runs with noise of that unit.
        attacked: KEY=VALUE of the runs that are attacked.
        left_out: name -> why the protocol cannot take part.
    """

    base: str
    epsilons: tuple[float, ...] = Field(min_length=1)
    client: tuple[str, ...]
    row: tuple[str, ...]
    attacked: tuple[str, ...]
    protocols: dict[Name, Entry]
    left_out: dict[Name, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _all_of_them(self) -> ComparisonPlan:
        refuse_all_but_every(NAMES, [*self.protocols, *self.left_out])
        return self

    def conditions(self, name: str) -> dict[str, PaperRun]:
        entry = self.protocols[name]
        late = ", ".join(f"{kind}: {delay}" for kind, delay in entry.late.items())
        delayed = (f"every_party.chaos.delay={{{late}}}",) if late else ()
        found = {PLAIN: self._run(PLAIN, entry)}
        if entry.late and entry.waits:
            found[SLOW] = self._run(SLOW, entry, *delayed)
        if entry.own is not None:
            found[OWN] = self._run(OWN, entry, *delayed, *entry.own)
        for unit, common in zip(UNITS, (self.client, self.row), strict=True):
            if (own := entry.noise(unit)) is not None:
                for epsilon in self.epsilons:
                    spends = f"federation.privacy.epsilon={epsilon:g}"
                    found[noisy(unit, epsilon)] = self._run(unit, entry, *common, *own, spends)
        if entry.late:
            found[ATTACKED] = self._run(ATTACKED, entry, *self.attacked)
        return found

    def _run(self, kind: str, entry: Entry, *more: str) -> PaperRun:
        return PaperRun(file=self.base, set=(*entry.set, *more), minutes=_MINUTES[kind])


def read_plan(path: Path = FILE) -> ComparisonPlan:
    return read_list(path, ComparisonPlan)


def with_outside(plan: ComparisonPlan, names: tuple[str, ...]) -> ComparisonPlan:
    """Adds an entry for each of these names that an installed package registers."""
    own = {name: _entry(name) for name in names if name in OUTSIDE.entries}
    return plan.model_copy(update={"protocols": {**plan.protocols, **own}})


def _entry(name: str) -> Entry:
    """Entry of another package's protocol: the base's width and rates, and a deadline with stragglers."""
    contract = CONTRACTS[name]
    width = ", embedding: 32" if "embedding" in contract.config.model_fields else ""
    sent = [kind for kind in contract.messages if issubclass(kind, PartyMessage) and "part" not in schema(kind)]
    return Entry(
        set=(f"federation.protocol={{name: {name}{width}}}",),
        late={kind.__name__: "fedvs" for kind in sent},
        own=("federation.quorum={deadline: 1}",) if sent else None,
        way="a deadline of 1 s",
        note=f"{OUTSIDE.version(name)}, with the base's rates: no plan has tuned it.",
    )


def chosen(plan: ComparisonPlan, names: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the requested protocols, all if none is named; refuses one that does not take part."""
    for name in names:
        if why := plan.left_out.get(name):
            raise InputError(f"{name} does not take part: {why}")
        if name not in plan.protocols:
            hint = f"there are {', '.join(plan.protocols)}"
            raise InputError(f"no protocol {name!r}{nearest(name, plan.protocols)}", hint=hint)
    return names or tuple(plan.protocols)


def jobs(plan: ComparisonPlan, names: tuple[str, ...], seeds: int) -> Iterator[Job]:
    """Yields every run: the first seed of all protocols, then the second. Attacks have only the first seed."""
    for seed in range(seeds):
        for name in names:
            for condition, run in plan.conditions(name).items():
                if condition != ATTACKED or seed == 0:
                    yield job(name, condition, run, seed)


def job(name: str, condition: str, run: PaperRun, seed: int) -> Job:
    return Job("beside", f"{name}/{condition}", run, seed)


ABOUT: Mapping[Unit, str] = {"client": "a party's whole data", "row": "a row's own embeddings"}


def deltas(plan: ComparisonPlan) -> dict[Unit, float]:
    return {unit: agreed.privacy.delta for unit, agreed in _agreed(plan).items() if agreed.privacy is not None}


def at(unit: Unit, value: float, found: Mapping[Unit, float]) -> str:
    return f"epsilon {value:g}" + (f", delta {found[unit]:g}," if unit in found else "")


def in_words(plan: ComparisonPlan) -> list[str]:
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
