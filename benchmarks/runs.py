"""Runs of `colonnade up` for benchmarks: in a folder of their own, with their events."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import median
from colonnade.common.run.json_text import read_lines

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Run:
    """A finished run: its summary, the server's events, and every party's by name."""

    summary: dict[str, Any]
    events: list[dict[str, Any]]
    parties: dict[str, list[dict[str, Any]]]

    def rounds(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["kind"] == "round"]

    def phases(self) -> dict[str, dict[str, float]]:
        """Seconds by phase, of the server and of the first party."""
        first = min(self.parties)
        return {"server": _phases(self.events), first: _phases(self.parties[first])}


@contextmanager
def started(experiment: str, *sets: str, out: Path | None = None) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run in progress: its process and its folder, which is removed when the block ends unless it is given.

    `experiment` is a file below experiments/, or any file by its whole path.
    """
    with tempfile.TemporaryDirectory() as scratch:
        out = out or Path(scratch) / "run"
        argv = [sys.executable, "-m", "colonnade", "up", str(ROOT / "experiments" / experiment), "--out", str(out)]
        argv += [word for each in sets for word in ("--set", each)]
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            yield process, out


def run(experiment: str, *sets: str, out: Path | None = None) -> Run:
    with started(experiment, *sets, out=out) as (process, folder):
        if process.wait() != 0:
            raise SystemExit(f"{experiment} failed with exit code {process.returncode}")
        return read(folder)


def rounds_in_turn(*what: tuple[str, ...], times: int = 2) -> list[float]:
    """Milliseconds of a round of each (experiment, KEY=VALUE ...): the median over `times` runs, made in turn.

    The first ten rounds of a run do not count.
    """
    taken: list[list[float]] = [[] for _ in what]
    for _ in range(times):
        for each, found in zip(what, taken, strict=True):
            found += [event["seconds"] for event in run(*each).rounds()[10:]]
    return [1e3 * median(found) for found in taken]


def read(out: Path) -> Run:
    events = list(read_lines(out / "events.jsonl"))
    parties = {folder.name: list(read_lines(folder / "events.jsonl")) for folder in (out / "parties").iterdir()}
    return Run(json.loads((out / "summary.json").read_text(encoding="utf-8")), events, parties)


def _phases(events: list[dict[str, Any]]) -> dict[str, float]:
    return next(event["phases"] for event in reversed(events) if event["kind"] == "end")
