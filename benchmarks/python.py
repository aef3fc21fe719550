"""The demo simulated from Python, against `colonnade simulate`; and the import of the package."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import Figure

_DEMO = Path(__file__).parents[1] / "experiments" / "demo.yaml"
_REPEATS = 5
_FROM_PYTHON = "import sys, colonnade; colonnade.simulate(sys.argv[1], out=sys.argv[2])"


def main() -> list[Figure]:
    """Runs both in turn, each in a process of its own, and takes the fastest of each."""
    command, python = [sys.executable, "-m", "colonnade", "simulate"], [sys.executable, "-c", _FROM_PYTHON]
    times: dict[str, list[float]] = {"command": [], "python": [], "import": []}
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(_REPEATS):
            times["command"].append(_seconds([*command, str(_DEMO), "--out", f"{folder}/command{repeat}"]))
            times["python"].append(_seconds([*python, str(_DEMO), f"{folder}/python{repeat}"]))
            times["import"].append(_seconds([sys.executable, "-c", "import colonnade"]))
    return [
        Figure(
            "the demo, simulated from Python", min(times["python"]), 1.05, "s", min(times["command"]), "the command"
        ),
        Figure("a process that imports colonnade", min(times["import"]), 0.3, "s"),
    ]


def _seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin
