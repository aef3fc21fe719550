"""Fourteen parties from launch to the first round, and the memory of each."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil

from benchmarks.report import Figure
from benchmarks.runs import read, started


def main() -> list[Figure]:
    """Starts MNIST among 14 parties, measures their memory in the second epoch, and lets them end."""
    sets = ("federation.epochs=2", "federation.evaluate.every=100000")
    with started("vimadmm/mnist.yaml", *sets) as (process, out):
        beyond = memory(process, out, rounds=60)
        process.wait()
        summary = read(out).summary
    return [
        Figure("14 parties, launch to first round", summary["seconds_to_first_round"], 5.0, "s"),
        Figure("proportional memory a party beyond the first", beyond / 1e6, 60.0, "MB"),
    ]


def memory(process: subprocess.Popen[bytes], out: Path, rounds: int) -> float:
    """Mean proportional bytes (PSS) of the parties except the smallest, after `rounds` rounds."""
    while _rounds(out / "events.jsonl") < rounds:
        if process.poll() is not None:
            raise SystemExit(f"the run ended with exit code {process.returncode} before round {rounds}")
        time.sleep(0.2)
    sizes = sorted(_proportional(child) for child in _parties(process.pid))
    return sum(sizes[1:]) / len(sizes[1:])


def _rounds(events: Path) -> int:
    return events.read_text(encoding="utf-8").count('"kind": "round"') if events.exists() else 0


def _parties(launcher: int) -> list[psutil.Process]:
    fork_server = psutil.Process(launcher).children()[0]
    return fork_server.children()[1:]  # the first is the server


def _proportional(process: psutil.Process) -> int:
    return int(process.memory_full_info().pss)
