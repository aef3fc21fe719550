"""Plan of the frontier (plans/frontier.yaml): every protocol on every set with every compression that it supports; and
one run of it: validation and test accuracy at each evaluation, and the clock at each delay.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field, model_validator

from colonnade.common.contracts.registry import CONTRACTS, NAMES
from colonnade.common.errors import InputError, nearest
from colonnade.common.messaging.message import PartyMessage, schema
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.common.section import Section
from colonnade.simulation.federation import Simulation
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.papers import PLANS, Name, PaperRun, read_list, refuse_all_but_every
from colonnade_lab.papers.running import Job, simulate

FILE = PLANS / "frontier.yaml"
PAPER = "frontier"
"""Under which results are stored, in place of a paper's name."""

DELAYS = (1, 25, 100)
"""Milliseconds that a message is under way, in either direction."""

COMPUTING = "10Gop/s"
"""Rate of every member's computing on the virtual clock."""

UNCOMPRESSED = "32 bits"


class FrontierBudgets(Section):
    """Budgets at which the page compares protocols: MiB of training messages, rounds, seconds on the run's clock."""

    mib: tuple[float, ...] = Field(min_length=1)
    rounds: tuple[float, ...] = Field(min_length=1)
    seconds: tuple[float, ...] = Field(min_length=1)


class FrontierSet(Section):
    """A data set.

    Args:
        file: the federation, below experiments/.
        active: the same federation, with one of the column holders at the server.
        columns: maximum number of columns of a holder.
        minutes: for one run of the cheapest protocol on one core.
        note: rows and epochs.
    """

    title: str
    file: str
    active: str
    columns: int = Field(ge=1)
    minutes: float = Field(gt=0)
    note: str


class FrontierEntry(Section):
    """A protocol.

    Args:
        set: KEY=VALUE on top of a set's file; COLUMNS stands for the set's number of columns.
        compress: directions that can be compressed.
        holder: the server is one of the column holders.
        arrivals: asynchronous: learning depends on delays, so every delay is a separate run.
        cost: minutes relative to those of the set.
        note: how it differs from the others.
        reference: a line for comparison, which no budget selects.
    """

    set: tuple[str, ...]
    compress: Literal["both", "up", "down", "none"] = "both"
    holder: bool = False
    arrivals: bool = False
    cost: float = Field(default=1, gt=0)
    note: str = ""
    reference: bool = False


class FrontierPlan(Section):
    """The whole frontier.

    Args:
        bits: per entry, of the compressed variants.
        left_out: name -> why the protocol takes no part.
    """

    sets: dict[Name, FrontierSet]
    bits: tuple[int, ...]
    budgets: FrontierBudgets
    protocols: dict[Name, FrontierEntry]
    left_out: dict[Name, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _every_protocol(self) -> FrontierPlan:
        refuse_all_but_every(NAMES, [*self.protocols, *self.left_out])
        return self

    def variants(self, name: str) -> dict[str, tuple[str, ...]]:
        """Compression settings of a protocol by variant name, the uncompressed one first."""
        found: dict[str, tuple[str, ...]] = {UNCOMPRESSED: ()}
        way = self.protocols[name].compress
        keys = {"both": ("up", "down"), "up": ("up",), "down": ("down",), "none": ()}[way]
        for bits in self.bits if keys else ():
            said = f"{bits} bits" if way == "both" else f"{bits} bits {way}"
            found[said] = (f"federation.compress={{{', '.join(f'{key}: {bits}' for key in keys)}}}",)
        return found

    def run(self, of: str, name: str, more: tuple[str, ...]) -> PaperRun:
        entry, data = self.protocols[name], self.sets[of]
        own = tuple(each.replace("COLUMNS", str(data.columns)) for each in entry.set)
        file = data.active if entry.holder else data.file
        return PaperRun(file=file, set=(*own, *more), minutes=data.minutes * entry.cost)

    def jobs(self, sets: tuple[str, ...], seeds: int) -> Iterator[Job]:
        for seed in range(seeds):
            for of in sets:
                for name in self.protocols:
                    for variant in self.variants(name):
                        yield from self.runs(of, name, variant, seed).values()

    def runs(self, of: str, name: str, variant: str, seed: int) -> Mapping[int, Job]:
        """The run of a variant for each delay; a synchronous protocol has one for all of them."""
        more, label = self.variants(name)[variant], f"{of}/{name}/{variant.replace(' ', '-')}"
        if not self.protocols[name].arrivals:
            one = Job(PAPER, label, self.run(of, name, more), seed)
            return dict.fromkeys(DELAYS, one)
        return {
            delay: Job(PAPER, f"{label}@{delay}ms", self.run(of, name, (*more, *delayed(name, delay))), seed)
            for delay in DELAYS
        }


def delayed(name: str, delay: float) -> tuple[str, ...]:
    """Settings of the clock: computing time at every member, and a one-way delay of every training message and its
    answer.

    A party's message carries both delays, so that an answer can arrive at once. Evaluations are not delayed, unless the
    server sends no answers: a party that waits for nothing would send them before its delayed message, and fill the
    server's mailbox.

    Args:
        delay: one way, in milliseconds.
    """
    messages = CONTRACTS[name].messages
    sent = [kind for kind in messages if issubclass(kind, PartyMessage)]
    answered = len(sent) < len(messages)
    kinds = [kind for kind in sent if "part" not in schema(kind) or not answered]
    late = ", ".join(f"{kind.__name__}: {2 * delay:g}ms" for kind in kinds)
    return (
        f"every_party.chaos.delay={{{late}}}",
        f"every_party.chaos.computing={COMPUTING}",
        f"server.chaos.computing={COMPUTING}",
    )


def read_frontier(path: Path = FILE) -> FrontierPlan:
    return read_list(path, FrontierPlan)


def chosen_sets(plan: FrontierPlan, which: str) -> tuple[str, ...]:
    if which and which not in plan.sets:
        hint = f"there are {', '.join(plan.sets)}"
        raise InputError(f"the frontier has no set {which!r}{nearest(which, plan.sets)}", hint=hint)
    return (which,) if which else tuple(plan.sets)


_PROBE = (4, 8)  # the time per round is measured between these


def perform(job: Job) -> RunRecord:
    """Runs a job to its end; for a synchronous protocol, runs a few more rounds at each delay to measure the clock.

    A job whose name ends with a delay has the delay in its configuration, and its own clock.
    """
    torch.set_num_threads(1)
    begun, validation = time.perf_counter(), dict[int, float]()

    def listen(event: Event) -> None:
        if event["kind"] == "evaluation" and (found := event.get("val_accuracy")) is not None:
            validation[event["round"]] = round(float(found), 6)

    record = simulate(job, listen)
    points = tuple(at.model_copy(update={"validation": validation.get(at.round)}) for at in record.points)
    clock = None if "@" in job.name else clocks(job)
    wall = round(time.perf_counter() - begun, 1)
    return record.model_copy(update={"points": points, "clock": clock, "wall": wall})


def clocks(job: Job) -> dict[str, tuple[float, float]]:
    """Measures a synchronous protocol's clock at each delay in milliseconds: seconds before the rounds, and per round.

    All of its rounds have equal messages and equal computing, if all batches have one size, whatever the model has
    learned. So a few rounds give the clock at any round; batches that differ in size are refused.
    """
    return {f"{delay}": probe(job, delay) for delay in DELAYS}


def probe(job: Job, delay: float) -> tuple[float, float]:
    early, late = _PROBE
    name = load(job.run.path, job.sets).federation.protocol.name
    more = (f"federation.rounds={late}", f"federation.evaluate={{every: {late}}}", *delayed(name, delay))
    config, ends = load(job.run.path, (*job.sets, *more)), dict[int, float]()

    def listen(event: Event) -> None:
        if event["kind"] == "begin":
            ends[0] = float(event["time"])
        elif event["kind"] == "round":
            ends[int(event["round"])] = float(event["time"])

    outcome = Simulation(config, job.run.path.parent, telemetry=Telemetry(None, listen)).run()
    if rest := len(outcome.server.schedule.partition.train) % config.federation.batch:
        raise InputError(
            f"{job.run.path}: the last batch of an epoch has {rest} rows, so that rounds take different times",
            hint="let the batch divide the number of training rows",
        )
    each = (ends[late] - ends[early]) / (late - early)
    return round(ends[late] - ends[0] - late * each, 9), round(each, 9)
