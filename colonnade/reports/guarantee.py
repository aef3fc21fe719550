"""Privacy of a summary in words: epsilon always with its delta, and a person's before a party's.

A person present at every party is in all releases: only that epsilon bounds what the run reveals about anyone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colonnade.common.contracts.registry import CONTRACTS

NOT_SAID = "no party has said what it spent"

_NEIGHBOURS = {"participation": "a party absent", "replace": "other data", "row": "a row"}
_ROW = "no bound for a row: "


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
    if why is not None:
        return f"no guarantee: {why}; by the accounting alone {accounted}"
    return accounted if accounted == NOT_SAID else f"{describe_person(summary)}; {accounted}"


def headline(summary: Mapping[str, Any]) -> str:
    if summary["privacy"] is None:
        return "no privacy mechanism"
    why = void(summary)
    if why is not None and why.startswith(_ROW):
        return f"no guarantee for a row ({why.removeprefix(_ROW)})"
    known = [epsilon for epsilon in by_party(summary).values() if epsilon is not None]
    if why is not None or not known:
        return f"no privacy guarantee ({why or NOT_SAID})"
    return f"{describe_person(summary)}; one party alone: epsilon {max(known):.2f} at delta {summary['delta']:g}"


def describe_person(summary: Mapping[str, Any]) -> str:
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
        f"{summary['delta']:g}: at one party, with the models held fixed; it bounds nothing else",
    )


def _accounted(summary: Mapping[str, Any]) -> str:
    spent = summary["privacy"]
    known = {kind: [e for e in found.values() if e is not None] for kind, found in spent["epsilon"].items()}
    if not all(known.values()):
        return NOT_SAID
    words = ", ".join(f"{max(found):.2f} ({_NEIGHBOURS[kind]})" for kind, found in known.items())
    run_cache = f", {spent['release_epsilon']:.2f} a release" if "release_epsilon" in spent else ""
    return f"one party alone: epsilon {words}{run_cache}, at delta {summary['delta']:g}"
