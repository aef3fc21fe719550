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

from colonnade.common.run.json_lines import read_lines

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
def started(experiment: str, *sets: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A run in progress: its process and its folder, which is removed when the block ends."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        argv = [sys.executable, "-m", "colonnade", "up", str(ROOT / "experiments" / experiment), "--out", str(out)]
        argv += [word for each in sets for word in ("--set", each)]
        with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            yield process, out


def run(experiment: str, *sets: str) -> Run:
    with started(experiment, *sets) as (process, out):
        if process.wait() != 0:
            raise SystemExit(f"{experiment} failed with exit code {process.returncode}")
        return read(out)


def read(out: Path) -> Run:
    events = list(read_lines(out / "events.jsonl"))
    parties = {folder.name: list(read_lines(folder / "events.jsonl")) for folder in (out / "parties").iterdir()}
    return Run(json.loads((out / "summary.json").read_text(encoding="utf-8")), events, parties)


def _phases(events: list[dict[str, Any]]) -> dict[str, float]:
    return next(event["phases"] for event in reversed(events) if event["kind"] == "end")
