from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from colonnade.common.config.federation import FederationConfig
from colonnade.common.privacy.accounting.plan import PrivacyPlan
from colonnade.common.version import VERSION

Values = Mapping[tuple[str, ...], float | tuple[float, float]]  # a pair: count and sum
Ways = Mapping[str, Mapping[str, Iterable[int]]]  # up or down -> kind -> messages, payload bytes


@dataclass(frozen=True)
class Metric:
    """Values of one metric, by label values.

    Args:
        kind: a counter only grows, a summary is a pair (count, sum), an info carries its labels only.
        name: with the unit and without `_total`, following prometheus.io/docs/practices/naming.
        about: description in one line.
        values: by the labels' values, in the labels' order.
    """

    kind: Literal["counter", "gauge", "summary", "info"]
    name: str
    about: str
    values: Values
    labels: tuple[str, ...] = ()


def number(kind: Literal["counter", "gauge"], name: str, about: str, value: float) -> Metric:
    return Metric(kind, name, about, {(): value})


def build(federation: FederationConfig, member: str) -> Metric:
    labels = ("version", "protocol", "federation", "member")
    values: Values = {(VERSION, federation.protocol.name, federation.id, member): 1.0}
    return Metric("info", "colonnade_build", "What runs here.", values, labels)


def rounds(done: int, newest: int, planned: int | None) -> Iterable[Metric]:
    """Progress of the run. `newest` falls on a rollback to a checkpoint, `done` never does."""
    yield number("counter", "colonnade_rounds", "Rounds that this process has done.", done)
    yield number("gauge", "colonnade_round", "The last round that is done.", newest)
    if planned is not None:
        yield number("gauge", "colonnade_rounds_planned", "Rounds that the run has at most.", planned)


def round_seconds(seconds: Mapping[str, float], done: int) -> Metric:
    about = "Seconds that rounds took, by what they were spent on."
    values: Values = {(phase,): (float(done), spent) for phase, spent in seconds.items()}
    return Metric("summary", "colonnade_round_seconds", about, values, ("phase",))


def traffic(parties: Mapping[str, Ways]) -> Iterable[Metric]:
    """Messages, and payload bytes as ledgers and summaries count them: tensors alone. `up` is to the server."""
    books = {
        (way, party, kind): tuple(entry)
        for party, ways in parties.items()
        for way, book in ways.items()
        for kind, entry in list(book.items())
    }
    labels = ("direction", "party", "kind")
    for place, unit, about in ((0, "messages", "Messages"), (1, "payload_bytes", "Bytes of tensors")):
        values: Values = {key: float(entry[place]) for key, entry in books.items()}
        yield Metric("counter", f"colonnade_{unit}", f"{about} that this process sent and received.", values, labels)


def wire(counts: Mapping[tuple[str, str], int]) -> Metric:
    """Bytes by direction and party: whole gRPC messages, before HTTP/2 and TLS."""
    values: Values = {key: float(count) for key, count in counts.items()}
    about = "Bytes of gRPC messages that this process sent and received."
    return Metric("counter", "colonnade_wire_bytes", about, values, ("direction", "party"))


def connected(parties: Mapping[str, bool]) -> Metric:
    values: Values = {(party,): float(there) for party, there in parties.items()}
    return Metric("gauge", "colonnade_connected", "1 while the party is connected to the server.", values, ("party",))


def queues(lengths: Mapping[tuple[str, str], int]) -> Metric:
    about = "Messages that wait: unsent for the connection, unread for the protocol."
    values: Values = {key: float(length) for key, length in lengths.items()}
    return Metric("gauge", "colonnade_queue_messages", about, values, ("queue", "party"))


def privacy(plan: PrivacyPlan | None, releases: Mapping[str, float]) -> Iterable[Metric]:
    """Privacy spent by releases, by party; empty without a guarantee."""
    if plan is None or plan.void is not None:
        return
    adjacency = plan.config.adjacency
    spent: Values = {(party, adjacency): plan.epsilon(count) for party, count in releases.items()}
    about = "Running count of what a party's releases cost; a run that ends early has cost what was planned."
    yield Metric("gauge", "colonnade_privacy_epsilon", about, spent, ("party", "adjacency"))
    yield number("gauge", "colonnade_privacy_delta", "The delta that epsilon is at.", plan.config.delta)
    if plan.config.epsilon is not None:
        about = "What a party's releases may cost in the whole run."
        yield number("gauge", "colonnade_privacy_epsilon_budget", about, plan.config.epsilon)


def person(epsilon: float | None) -> Iterable[Metric]:
    """Privacy cost of all parties' planned releases for a person present at every party; empty without a guarantee."""
    if epsilon is not None:
        about = "Privacy cost of all parties' planned releases for a person present at every party, at the same delta."
        yield number("gauge", "colonnade_privacy_person_epsilon", about, epsilon)


def checkpoint(round: int) -> Metric:
    return number("gauge", "colonnade_checkpoint_round", "The newest round that is saved.", round)
