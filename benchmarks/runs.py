"""Runs of `colonnade up` for benchmarks: in a folder of their own, with their events and their processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

from benchmarks.report import median
from colonnade.common.run.json_text import read_lines

ROOT = Path(__file__).parent.parent
Experiment = str | Mapping[str, Any]
"""A file below experiments/, any file by its whole path, or the content of a file."""


@dataclass(frozen=True)
class Run:
    """A finished run: its summary, the server's events, and every party's by name."""

    summary: dict[str, Any]
    events: list[dict[str, Any]]
    parties: dict[str, list[dict[str, Any]]]

    def rounds(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == "round"]

    def round_seconds(self, warm: int) -> float:
        """The median of a round, without the first `warm` ones."""
        return median([event["seconds"] for event in self.rounds()[warm:]])

    def phases(self) -> dict[str, dict[str, float]]:
        """Seconds by phase, of the server and of the first party."""
        first = min(self.parties)
        ends = {"server": self.events, first: self.parties[first]}
        return {name: next(e["phases"] for e in reversed(of) if e["kind"] == "end") for name, of in ends.items()}


@contextmanager
def started(
    experiment: Experiment, *sets: str, out: Path | None = None, base: Path | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run in progress: its process and its folder, which is removed when the block ends unless it is given.

    Args:
        base: folder for the file of an experiment given by its content, whose paths are relative to it.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out, file = out or Path(scratch) / "run", (base or Path(scratch)) / "run.yaml"
        if isinstance(experiment, str):
            file = ROOT / "experiments" / experiment
        else:
            file.write_text(yaml.safe_dump(experiment), encoding="utf-8")
        argv = [sys.executable, "-m", "colonnade", "up", str(file), "--out", str(out)]
        argv += [word for each in sets for word in ("--set", each)]
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            yield process, out


def run(experiment: Experiment, *sets: str, out: Path | None = None, base: Path | None = None) -> Run:
    with started(experiment, *sets, out=out, base=base) as (process, folder):
        return finished(process, folder)


def finished(process: subprocess.Popen[bytes], out: Path) -> Run:
    """Waits for the end. Raises SystemExit if the run fails."""
    if code := process.wait():
        raise SystemExit(f"the run failed with exit code {code}")
    events = list(read_lines(out / "events.jsonl"))
    parties = {folder.name: list(read_lines(folder / "events.jsonl")) for folder in (out / "parties").iterdir()}
    return Run(json.loads((out / "summary.json").read_text(encoding="utf-8")), events, parties)


def rounds_in_turn(*what: tuple[str, ...], times: int = 2) -> list[float]:
    """Milliseconds of a round of each (experiment, KEY=VALUE ...): the median over `times` runs, made in turn.

    The first ten rounds of a run do not count.
    """
    taken: list[list[float]] = [[] for _ in what]
    for _ in range(times):
        for each, found in zip(what, taken, strict=True):
            found += [event["seconds"] for event in run(*each).rounds()[10:]]
    return [1e3 * median(found) for found in taken]


def members(process: subprocess.Popen[bytes], out: Path, rounds: int) -> tuple[int, list[psutil.Process]]:
    """How many rounds are done once there are `rounds`, and the processes of the server and the parties."""
    while (done := _rounds(out / "events.jsonl")) < rounds:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with exit code {process.returncode} before round {rounds}")
        time.sleep(0.02)
    return done, psutil.Process(process.pid).children()[0].children()  # of the fork server


def processor_times(process: subprocess.Popen[bytes], out: Path, first: int, last: int) -> list[float]:
    """Processor seconds of a round, of the server and of every party, between two rounds of a run."""
    marks = []
    for wanted in (first, last):
        done, found = members(process, out, wanted)
        marks.append((done, [sum(member.cpu_times()[:2]) for member in found]))
    (begin, before), (end, after) = marks
    return [(late - early) / (end - begin) for early, late in zip(before, after, strict=True)]


def _rounds(events: Path) -> int:
    return events.read_text(encoding="utf-8").count('"kind": "round"') if events.exists() else 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
