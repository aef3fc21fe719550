"""Follows a soak: figures of every process, taken at intervals; and the server's events: rounds, sessions, and whether
rounds only go back to common checkpoints.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.soak.members import Household, Member


@dataclass
class Tail:
    """Reads what was appended to a JSON lines file since the last read."""

    path: Path
    lines: int = 0
    _read: int = 0

    def new(self) -> list[dict[str, Any]]:
        """New complete lines; torn ones are skipped."""
        if not self.path.is_file():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        found = []
        for line in whole.splitlines():
            self.lines += 1
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                found.append(entry)
        return found


@dataclass
class Rounds:
    """Rounds by the server's events.

    Args:
        newest: time of the newest event of a round that reached `highest`.
        broken: faults: a round that does not follow its predecessor, or a result that differs from the round's first.
        results: of every round and evaluation, by kind, part and round.
    """

    done: int = 0
    highest: int = 0
    newest: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    results: dict[tuple[str, str, int], str] = field(default_factory=dict)
    compared: int = 0
    _next: int | None = None
    _committed: int = 0

    def take(self, event: dict[str, Any]) -> None:
        kind = str(event["kind"])
        self.kinds[kind] += 1
        if kind == "begin":
            self._begin(int(event.get("round", 0)))
        elif kind == "rejoin":
            self._begin(int(event["round"]))
        elif kind == "round":
            self._round(event)
        if kind in ("round", "evaluation"):
            self._result(event)

    def _begin(self, round: int) -> None:
        if round > self.highest:
            self.broken.append(f"begins after round {round}, and round {self.highest} was the highest")
        self._next = round + 1

    def _round(self, event: dict[str, Any]) -> None:
        number = int(event["round"])
        if self._next is not None and number != self._next:
            self.broken.append(f"round {number} where round {self._next} was due")
        self._next = number + 1
        self.done += 1
        if number > self.highest:
            self.highest, self.newest = number, float(event["time"])

    def _result(self, event: dict[str, Any]) -> None:
        key = (event["kind"], str(event.get("part", "")), int(event["round"]))
        value = outcome(event)
        first = self.results.setdefault(key, value)
        if first != value:
            self.broken.append(f"{key} gave {value} and before {first}")


def outcome(event: dict[str, Any]) -> str:
    """Numbers of a round or an evaluation that must be equal whenever it is repeated."""
    names = sorted(name for name in event if name == "loss" or "accuracy" in name or name.endswith("loss"))
    return json.dumps({name: event[name] for name in names})


_QUEUE = re.compile(r"^colonnade_queue_messages\{.*\} (\S+)$", re.MULTILINE)
_REFUSED = re.compile(r"^colonnade_refused_connections_total (\S+)$", re.MULTILINE)

Sample = dict[str, Any]


class Sampler:
    """Takes samples in a thread. A context manager.

    Args:
        metrics: the port of each member's metrics.
        shared: figures of the whole federation at this moment.
    """

    def __init__(
        self, household: Household, metrics: dict[str, int], every: float, shared: Callable[[], Sample]
    ) -> None:
        self.samples: list[Sample] = []
        self._household, self._metrics, self._every, self._shared = household, metrics, every, shared
        self._tails = {name: Tail(one.folder / "events.jsonl") for name, one in household.members.items()}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._every):
            now, shared = time.time(), self._shared()
            for name, member in self._household.members.items():
                if (found := self._one(name, member)) is not None:
                    self.samples.append({"time": round(now, 2), "member": name, **found, **shared})

    def _one(self, name: str, member: Member) -> Sample | None:
        process = member.watched()
        if process is None:
            return None
        self._tails[name].new()
        with suppress(psutil.Error):
            times = process.cpu_times()
            return {
                "life": len(member.lives),
                "rss": process.memory_info().rss,
                "descriptors": process.num_fds(),
                "threads": process.num_threads(),
                "cpu": times.user + times.system,
                "events": self._tails[name].lines,
                "log": member.log.stat().st_size,
                **_exposed(self._metrics[name]),
            }
        return None


def _exposed(port: int) -> Sample:
    with suppress(OSError, ValueError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as page:
        text = page.read().decode()
        queued, refused = _QUEUE.findall(text), _REFUSED.findall(text)
        return {"queued": sum(map(float, queued)), "refused": float(refused[0]) if refused else None}
    return {"queued": None, "refused": None}


WARM, LEAST = 120.0, 600.0  # seconds of a process that are excluded, and that it must run for after them
BLOCK, DRAWS = 30, 500  # samples per bootstrap block, since neighbours are correlated; bootstrap draws


@dataclass(frozen=True)
class Slope:
    """Growth an hour, with its 95 % interval, and the hours of samples and the processes behind it."""

    slope: float
    low: float
    high: float
    hours: float
    processes: int


def slope(samples: Sequence[Sample], name: str, warm: float = WARM, least: float = LEAST) -> Slope | None:
    """The common slope within the processes of one member, each with its own intercept, by least squares.

    The interval comes from a bootstrap of the residuals in blocks.

    Args:
        warm: seconds at the beginning of each process that are excluded.
        least: seconds that a process must run for beyond these.
    """
    times, values, seconds, processes = [], [], 0.0, 0
    for _, group in groupby(samples, lambda sample: sample["life"]):
        life = list(group)
        kept = [sample for sample in life if sample["time"] >= life[0]["time"] + warm]
        if len(kept) < 3 or kept[-1]["time"] - kept[0]["time"] < least:
            continue
        t = np.array([sample["time"] for sample in kept]) / 3600
        y = np.array([float(sample[name]) for sample in kept])
        times.append(t - t.mean())
        values.append(y - y.mean())
        seconds, processes = seconds + kept[-1]["time"] - kept[0]["time"], processes + 1
    if not processes:
        return None
    t, y = np.concatenate(times), np.concatenate(values)
    fitted = float(t @ y / (t @ t))
    rest, draws = y - fitted * t, np.random.default_rng(0)
    block, starts = min(BLOCK, len(rest)), -(-len(rest) // min(BLOCK, len(rest)))
    again = []
    for _ in range(DRAWS):
        begins = draws.integers(0, len(rest) - block + 1, starts)
        drawn = np.concatenate([rest[begin : begin + block] for begin in begins])[: len(rest)]
        again.append(fitted + float(t @ drawn / (t @ t)))
    low, high = np.percentile(again, [2.5, 97.5])
    return Slope(fitted, float(low), float(high), seconds / 3600, processes)
