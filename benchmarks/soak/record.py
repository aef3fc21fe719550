"""Follows a soak: figures of every process, taken at intervals; and the server's events: rounds, sessions, and whether
rounds only go back to common checkpoints.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.judge import Key, key_of, outcome
from benchmarks.soak.members import Household, Member


class Tail:
    """Reads what was appended to a JSON lines file since the last read."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path, 0

    def new(self) -> Iterator[dict[str, Any]]:
        """New complete lines; torn ones are skipped."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.splitlines():
            with suppress(ValueError):
                yield json.loads(line)


@dataclass
class Rounds:
    """Rounds by the server's events.

    Args:
        newest: time of the newest event of a round that reached `highest`.
        broken: faults: a round that does not follow its predecessor, or a result that differs from the round's first.
        results: of every round and evaluation.
    """

    done: int = 0
    highest: int = 0
    newest: float = 0.0
    sessions: int = 0
    broken: list[str] = field(default_factory=list)
    results: dict[Key, str] = field(default_factory=dict)
    _next: int | None = None

    def take(self, event: dict[str, Any]) -> None:
        kind = event["kind"]
        if kind in ("begin", "rejoin"):
            self.sessions += kind == "begin"
            before = int(event.get("round", 0))
            if before > self.highest:
                self.broken.append(f"begins after round {before}, and round {self.highest} was the highest")
            self._next = before + 1
        elif kind == "round":
            number = int(event["round"])
            if self._next is not None and number != self._next:
                self.broken.append(f"round {number} where round {self._next} was due")
            self._next = number + 1
            self.done += 1
            if number > self.highest:
                self.highest, self.newest = number, float(event["time"])
        if kind in ("round", "evaluation"):
            key, value = key_of(event), outcome(event)
            if (first := self.results.setdefault(key, value)) != value:
                self.broken.append(f"{key} gave {value} and before {first}")


_QUEUE = re.compile(r"^colonnade_queue_messages\{.*\} (\S+)$", re.MULTILINE)

Sample = dict[str, Any]


class Sampler:
    """Takes samples in a thread. A context manager.

    metrics: the port of each member's metrics.
    """

    def __init__(self, household: Household, metrics: dict[str, int], every: float) -> None:
        self.samples: list[Sample] = []
        self._household, self._metrics, self._every, self._over = household, metrics, every, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            now = round(time.time(), 2)
            for name, member in self._household.members.items():
                with suppress(psutil.Error):
                    if member.process is not None and member.alive:
                        self.samples.append({"time": now, "member": name, **self._one(member, member.process.pid)})

    def _one(self, member: Member, pid: int) -> Sample:
        process = psutil.Process(pid)
        return {
            "life": len(member.lives), "rss": process.memory_info().rss, "descriptors": process.num_fds(),
            "threads": process.num_threads(), "cpu": sum(process.cpu_times()[:2]), "log": member.log.stat().st_size,
            "queued": _queued(self._metrics[member.name]),
        }  # fmt: skip


def _queued(port: int) -> float | None:
    with suppress(OSError, ValueError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as page:
        return sum(map(float, _QUEUE.findall(page.read().decode())))
    return None


WARM, LEAST = 120.0, 600.0  # seconds of a process that are excluded, and that it must run for after them
BLOCK, DRAWS = 30, 500  # samples per bootstrap block, since neighbours are correlated; bootstrap draws


@dataclass(frozen=True)
class Slope:
    """Growth an hour, with its 95 % interval."""

    slope: float
    low: float
    high: float


def slope(samples: Sequence[Sample], name: str) -> Slope | None:
    """The common slope within the processes of one member, each with its own intercept, by least squares.

    The interval comes from a bootstrap of the residuals in blocks. None if no process lived for long enough.
    """
    times, values = [], []
    for _, group in groupby(samples, lambda sample: sample["life"]):
        life = list(group)
        kept = [sample for sample in life if sample["time"] >= life[0]["time"] + WARM]
        if len(kept) >= 3 and kept[-1]["time"] - kept[0]["time"] >= LEAST:
            t, y = (np.array([float(sample[key]) for sample in kept]) for key in ("time", name))
            times.append((t - t.mean()) / 3600)
            values.append(y - y.mean())
    if not times:
        return None
    t, y = np.concatenate(times), np.concatenate(values)
    fitted = float(t @ y / (t @ t))
    rest, draws, block = y - fitted * t, np.random.default_rng(0), min(BLOCK, len(y))
    again = []
    for _ in range(DRAWS):
        begins = draws.integers(0, len(rest) - block + 1, -(-len(rest) // block))
        drawn = np.concatenate([rest[begin : begin + block] for begin in begins])[: len(rest)]
        again.append(fitted + float(t @ drawn / (t @ t)))
    low, high = np.percentile(again, [2.5, 97.5])
    return Slope(fitted, float(low), float(high))
