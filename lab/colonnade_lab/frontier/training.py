"""One run of the frontier: validation and test accuracy at each evaluation, and the clock at each delay."""

from __future__ import annotations

import time

import torch

from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from colonnade_lab.frontier.plan import DELAYS, delayed
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.running import Job, simulate

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
