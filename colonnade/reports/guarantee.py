"""Privacy that a run has spent, in numbers and in words: epsilon with its delta, a person's before a party's.

A person present at every party is in all releases: only that epsilon bounds what the run reveals about anyone.
summary.json is a record of training. Predictions spend more, which the parties' ledgers count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.accountant import SENSITIVITY, Event, stated_releases
from colonnade.common.privacy.accounting.budget import paid_for
from colonnade.common.privacy.accounting.ledger import refuse_unpinned
from colonnade.common.run.run_folder import RunFolder
from colonnade.reports.words import listed

NOT_SAID = "no party has said what it spent"

_NEIGHBOURS = {"participation": "a party absent", "replace": "other data", "row": "a row"}
_ROW = "no bound for a row: "


def with_ledgers(summary: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A summary whose releases and epsilons are those of the ledgers in the run's folder, predictions included.

    `privacy.counted` names the parties whose ledgers are here and whole. A count never falls below the summary's.
    """
    if (said := summary.get("privacy")) is None:
        return dict(summary)
    paid: dict[str, float] = {}
    for name, training in said["releases"].items():
        ledger = RunFolder(folder).party(name).ledger
        with suppress(CheckpointError, OSError):
            refuse_unpinned(ledger)
            found = paid_for(ledger, said["noise_multiplier"])
            # a code of `discrete` is drawn once, and predictions send it again
            if found == training or (found > (training or 0) and said["mechanism"] != "discrete"):
                paid[name] = found
    more = any(count != said["releases"][name] for name, count in paid.items())
    made = {**summary, "privacy": {**said, "counted": list(paid)}}
    return _spending(made, {**said["releases"], **paid}) if more else made


def _spending(summary: Mapping[str, Any], releases: Mapping[str, float | None]) -> dict[str, Any]:
    """A summary with other releases: its epsilons are computed anew."""
    from colonnade.common.privacy.accounting.sampled import SampledGaussian  # noqa: PLC0415  # scipy

    said, person = summary["privacy"], summary["person"]
    steps, honest = said.get("secret_steps"), said.get("present", 1) - said.get("colluders", 0)

    def epsilon(count: float, adjacency: Any, parties: int = 1) -> float:
        drawn = SampledGaussian(**{**steps, "steps": parties * steps["steps"]}) if steps and count else None
        event = Event(count, said["noise_multiplier"], SENSITIVITY[adjacency], drawn)
        return round(event.epsilon(summary["delta"], said["accounting"]), 6)

    planned, limit = said.get("planned", {}), said.get("limit")  # versions before 0.3 did not write them
    stated = {
        name: None if made is None else stated_releases(made, planned.get(name, made), limit)
        for name, made in releases.items()
    }
    by_adjacency = {
        kind: {name: None if count is None else epsilon(count, kind) for name, count in stated.items()}
        for kind in said["epsilon"]
    }
    if person["epsilon"] is not None:
        strict = "row" if "row" in by_adjacency else "replace"
        total = honest * sum(count for count in stated.values() if count is not None)
        person = {**person, "epsilon": epsilon(total, strict, len(releases))}
    return {
        **summary,
        "person": person,
        "epsilon": summary["epsilon"] if said["void"] else by_adjacency[said["adjacency"]],
        "privacy": {**said, "releases": dict(releases), "epsilon": by_adjacency},
    }


def uncounted(summary: Mapping[str, Any]) -> str:
    """What the epsilons leave out, to end a sentence with; "" if every party's predictions are in them."""
    said = summary["privacy"]
    if said is None or not (left := [name for name in said["releases"] if name not in said.get("counted", ())]):
        return ""
    return f"; predictions{f' of {listed(left, 4)}' if said.get('counted') else ''} are not counted"


def not_made(summary: Mapping[str, Any]) -> str:
    """How many planned releases epsilon counts that were not made, to end a sentence with; "" if all were made."""
    said = summary["privacy"] or {}
    ended = [
        (planned, made)
        for name, planned in said.get("planned", {}).items()
        if (made := said["releases"].get(name)) and made < planned
    ]
    if not ended:
        return ""
    planned, made = max(ended)
    return f"; of all {planned} planned releases, {made:g} were made: a server may choose a run's end by them"


def void(summary: Mapping[str, Any]) -> str | None:
    """Why there is no guarantee despite accounting; None if there is one, or no mechanism."""
    spent = summary["privacy"]
    return None if spent is None or not spent["void"] else str(spent["void"])


def by_party(summary: Mapping[str, Any]) -> dict[str, float | None]:
    found = summary.get("epsilon") or {}
    return dict.fromkeys(found) if summary.get("privacy") is None or void(summary) else dict(found)


def describe_privacy(summary: Mapping[str, Any]) -> str:
    """The guarantee in one line, for a person and for the party with most releases; or its absence."""
    spent = summary["privacy"]
    if spent is None:
        return f"no guarantee; the server sees {CONTRACTS[summary['protocol']].sees['server']}"
    why = void(summary)
    if why is not None and why.startswith(_ROW):
        return f"no guarantee for a row: {why.removeprefix(_ROW)}"
    accounted = _accounted(summary)
    accounted += "" if accounted == NOT_SAID else not_made(summary) + uncounted(summary)
    if why is not None:
        return f"no guarantee: {why}; by the accounting alone {accounted}"
    return accounted if accounted == NOT_SAID else f"{_person(summary)}; {accounted}"


def headline(summary: Mapping[str, Any]) -> str:
    if summary["privacy"] is None:
        return "no privacy mechanism"
    why = void(summary)
    if why is not None and why.startswith(_ROW):
        return f"no guarantee for a row ({why.removeprefix(_ROW)})"
    known = [epsilon for epsilon in by_party(summary).values() if epsilon is not None]
    if why is not None or not known:
        return f"no privacy guarantee ({why or NOT_SAID})"
    alone = f"one party alone: epsilon {max(known):.2f} at delta {summary['delta']:g}"
    return f"{_person(summary)}; {alone}{not_made(summary)}{uncounted(summary)}"


def describe_person(summary: Mapping[str, Any]) -> str:
    """The guarantee of a person at every party, with what it leaves out."""
    return _person(summary) + ("" if summary["person"]["epsilon"] is None else uncounted(summary))


def _person(summary: Mapping[str, Any]) -> str:
    whose = f"a person at all {len(summary['parties'])} parties" if "parties" in summary else "a person at all parties"
    person = summary["person"]
    if person["epsilon"] is None:
        return f"no guarantee for {whose} ({person['void']})"
    return f"{whose}: epsilon {person['epsilon']:.2f} at delta {person['delta']:g}"


def details(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Accounting that gives no guarantee, with its meaning."""
    why = void(summary)
    if why is None or not why.startswith(_ROW):
        return
    known = [count for count in summary["privacy"]["epsilon"]["row"].values() if count is not None]
    if not known:
        return
    yield (
        "a row's own embeddings",
        f"epsilon {summary['privacy']['release_epsilon']:.2f} a release, {max(known):.2f} in all at delta "
        f"{summary['delta']:g}: at one party, with the models held fixed; it bounds nothing else{uncounted(summary)}",
    )


def _accounted(summary: Mapping[str, Any]) -> str:
    spent = summary["privacy"]
    known = {kind: [e for e in found.values() if e is not None] for kind, found in spent["epsilon"].items()}
    if not all(known.values()):
        return NOT_SAID
    words = ", ".join(f"{max(found):.2f} ({_NEIGHBOURS[kind]})" for kind, found in known.items())
    run_cache = f", {spent['release_epsilon']:.2f} a release" if "release_epsilon" in spent else ""
    return f"one party alone: epsilon {words}{run_cache}, at delta {summary['delta']:g}"
