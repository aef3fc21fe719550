"""Finds claims that cannot fail: both sides are one run, or the second is the first with a handicap.

A handicap is a delay, noise, or, in FedVS, waiting for more responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from colonnade.common.config.chaos import ChaosConfig
from colonnade.common.config.members import Config
from colonnade.common.parsing.file import load
from colonnade.common.parsing.yaml_tree import override, read_tree
from colonnade.common.protocols.fedvs import Config as FedvsConfig
from colonnade_lab.papers.papers import Claim, Paper, PaperRun

_UNDISTURBED = ChaosConfig()
_WAITS = ("segments", "masks")


def idle_claims(paper: Paper) -> Iterator[str]:
    """Yields every claim of the paper's list that cannot fail, and why.

    Delays cannot make a run faster or more accurate, nor can noise if nothing else differs. Such a claim needs a lead
    (`by`) for noise, and another setting for delays. FedVS waits for more responses with more segments or masks, and
    model shares are then later; only computing, where it is charged, can make up for it.
    """
    for name, table in paper.tables.items():
        for claim in table.claims:
            if why := _why(claim, paper.runs):
                yield f"{name}, {claim.text!r}: {why}"


def _why(claim: Claim, runs: Mapping[str, PaperRun]) -> str:
    first, *others = claim.measures
    for other in others:
        measures = claim.measures[first], claim.measures[other]
        if why := _handicap(runs[first], runs[other], equal=measures[0] == measures[1], by=claim.by):
            return f"{first} and {other} {why}"
    return ""


def _handicap(first: PaperRun, other: PaperRun, *, equal: bool, by: float) -> str:
    one, two = (_config(run.file, run.set) for run in (first, other))
    mine, others = (_tree(run.file, run.set) for run in (first, other))
    if mine == others:
        return "are one run" if equal else ""
    if _without(mine, "chaos") == _without(others, "chaos") and _disturbances(one) < _disturbances(two):
        return "differ in chaos alone, and the undisturbed one is to win"
    if _without(mine, "privacy") == _without(others, "privacy") and not _noisy(one) and _noisy(two) and not by:
        return "differ in privacy alone, and the one without noise is to win by nothing"
    if _without(mine, *_WAITS) == _without(others, *_WAITS) and _waits_less(one, two) and not _computes(one):
        return "differ in segments or masks alone, the first waits for fewer responses, and computing takes no time"
    return ""


@cache
def _config(file: str, changes: tuple[str, ...]) -> Config:
    return load(PaperRun(file=file, minutes=1).path, changes)


@cache
def _tree(file: str, changes: tuple[str, ...]) -> dict[str, Any]:
    """The settings as written: defaults may depend on privacy."""
    tree = read_tree(PaperRun(file=file, minutes=1).path)
    for change in changes:
        override(tree, change)
    tree["federation"].pop("id", None)
    tree["federation"].pop("benchmark", None)  # belongs to privacy: accepts clean evaluations
    return tree


def _without(tree: Any, *keys: str) -> Any:
    """The tree without these keys at any depth."""
    if isinstance(tree, dict):
        return {name: _without(value, *keys) for name, value in tree.items() if name not in keys}
    return [_without(value, *keys) for value in tree] if isinstance(tree, list) else tree


def _disturbances(config: Config) -> set[str]:
    """What disturbs a party. A bandwidth is no disturbance."""
    found = set()
    for party in config.parties.values():
        for name in ChaosConfig.model_fields:
            if name != "bandwidth" and getattr(party.chaos, name) != getattr(_UNDISTURBED, name):
                found.add(name)
    return found


def _waits_less(one: Config, two: Config) -> bool:
    """True if FedVS waits for fewer of R = 2 (K + T - 1) + 1 responses in the first, and for no slower shares."""
    mine, others = one.federation.protocol, two.federation.protocol
    if not isinstance(mine, FedvsConfig) or not isinstance(others, FedvsConfig):
        return False
    k, other_k = mine.segments, others.segments
    if not isinstance(k, int) or not isinstance(other_k, int):  # `auto` is resolved once the parties are known
        return False
    return k <= other_k and k + mine.masks < other_k + others.masks


def _computes(config: Config) -> bool:
    """True if a party's computing takes time on the clock."""
    return any(party.chaos.computing for party in config.parties.values())


def _noisy(config: Config) -> bool:
    server = config.server.privacy if config.server is not None else None
    return bool(config.federation.privacy or (server and (server.labels or server.answers)))
