"""Profile of a round: split learning among four parties and FedVS among sixteen, in processor time of all members.

Four measurements of one federation on columns of noise (scaling.py), each including more than the last:

- the same passes and steps without messages (`scaling.floor`);
- both sides on the virtual clock, in one process. Every few milliseconds of processor time a sampler classifies the
innermost frame that can be: models and numerics, crypto, or other Python code;
- the messages of a round through the codec, there and back;
- all members as processes over mutual TLS: processor time between two rounds of one run, as the system counts it.

The excess of the processes over the virtual clock and the codec is gRPC, TLS, system calls, queues, and shared caches;
as a difference, it includes everything else in which they differ.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import torch

from benchmarks.report import Figure
from benchmarks.runs import processor_times, started
from benchmarks.scaling import FLOOR, Setting, floor, write
from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.messaging.message import Message
from colonnade.common.observability.telemetry import Event, Telemetry
from colonnade.common.wire.codec import Codec
from colonnade.simulation.federation import Simulation

SETTINGS = {"split among 4": (Setting("split"), 600), "FedVS among 16, K = 4": (Setting("fedvs", 16, segments=4), 60)}
WARM = 10  # rounds excluded
TICK = 0.004  # seconds of processor time between two samples
PLACES = {
    "models and numerics": ("/torch/", "/common/models/", "/common/aggregation/"),
    "crypto": ("/common/crypto/", "/cryptography/"),
}
REST = "Python of halves and conversation"


def main() -> list[Figure]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        return [figure for name in SETTINGS for figure in _parts(name, Path(scratch))]


def _parts(name: str, folder: Path) -> list[Figure]:
    setting, rounds = SETTINGS[name]
    whole = over_the_wire(setting, rounds, folder)
    alone, where = in_one_process(setting, rounds, folder)
    coding = codec(setting, folder)
    parts = {place: alone * share for place, share in where.items()}
    parts |= {"the codec": coding, "gRPC, TLS, system calls, processes": whole - alone - coding}
    figures = [Figure(f"{name}, a round of all processes", 1e3 * whole, None, "ms", 1e3 * floor(setting), FLOOR)]
    return figures + [
        Figure(f"{name}, of it {place}", 1e3 * seconds, None, "ms", 1e3 * whole, "the whole")
        for place, seconds in parts.items()
    ]


def in_one_process(setting: Setting, rounds: int, folder: Path) -> tuple[float, dict[str, float]]:
    """Processor seconds of a round on the virtual clock, and the share of each place in them."""
    seen: Counter[str] = Counter()
    moments: list[float] = []

    def look(_number: int, frame: FrameType | None) -> None:
        seen[place_of(frame)] += 1

    def hear(event: Event) -> None:
        if event["kind"] == "round":
            moments.append(time.process_time())
            if event["round"] in (WARM, rounds):
                every = TICK if event["round"] == WARM else 0.0
                signal.setitimer(signal.ITIMER_PROF, every, every)

    before = signal.signal(signal.SIGPROF, look)
    try:
        Simulation(setting.config(rounds), folder, telemetry=Telemetry(None, hear)).run()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)
    seconds = (moments[-1] - moments[WARM - 1]) / (rounds - WARM)
    return seconds, {place: seen[place] / max(1, seen.total()) for place in (*PLACES, REST)}


def place_of(frame: FrameType | None) -> str:
    """Label of the innermost frame found in `PLACES`; `REST` if none is."""
    while frame is not None:
        file = frame.f_code.co_filename
        for place, marks in PLACES.items():
            if any(mark in file for mark in marks):
                return place
        frame = frame.f_back
    return REST


def codec(setting: Setting, folder: Path) -> float:
    """Processor seconds to encode and decode a round's messages."""
    outcome = Simulation(setting.config(2), folder, record=True).run()  # evaluated after the second round alone
    of_round = [message for _, _, message in outcome.messages if getattr(message, "round", 0) == 1]
    both = Codec(CONTRACTS[setting.protocol].kinds)
    return min(_there_and_back(both, of_round) for _ in range(5))


def _there_and_back(both: Codec, messages: Sequence[Message]) -> float:
    begin = time.process_time()
    for message in messages:
        both.decode(type(message).__name__, memoryview(b"".join(both.encode(message))))
    return time.process_time() - begin


def over_the_wire(setting: Setting, rounds: int, folder: Path) -> float:
    """Processor seconds of a round, of all members. Raises SystemExit if the run ended too early."""
    with started(setting.tree(rounds), base=folder) as (process, out):
        return sum(processor_times(process, out, WARM, rounds * 4 // 5))
