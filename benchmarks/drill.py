"""`python -m benchmarks.drill [RUNS]`: kills members of a federation at random moments, and checks what is left.

Every run is VIMADMM on the digits among four parties, as processes, and loses a member once to SIGKILL in a random
round: the server (two runs in five), a party (two), or everything at once with the launcher (one). It must end
`completed`, with parameters equal in every bit to those of an undisturbed run, and with a ledger that holds that run's
entries, and beyond them only entries marked `repeat`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from benchmarks import judge
from benchmarks.report import console
from benchmarks.runs import ROOT
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.run.json_text import read_lines

SETS = ("federation.checkpoint.rounds=7", "federation.public_start=true", "launch.backoff=0")  # the same parameters
ROUNDS, PATIENCE = 72, 90.0
VICTIMS = ("server", "party", "server", "party", "all")

Start = Callable[..., "subprocess.Popen[str]"]


class Broken(Exception):
    """A run did not survive as it should."""


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    draws = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 10**6)
    broken = drill(runs, draws)
    raise SystemExit(1 if broken else 0)


def drill(runs: int, draws: random.Random, victims: tuple[str, ...] = VICTIMS, start: Start = subprocess.Popen) -> int:
    """Returns the number of broken runs. Prints the outcome of each.

    victims: who is killed, in turn.
    start: how a process is started, by the arguments of subprocess.Popen.
    """
    launch = partial(_launch, start)
    survived: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="drill-") as scratch:
        alone = Path(scratch) / "alone"
        _wait(launch("--out", str(alone)))
        for number in range(1, runs + 1):
            victim = victims[(number - 1) % len(victims)]
            if victim == "party":
                victim = f"party{draws.randint(1, 4)}"
            moment = (draws.randint(1, ROUNDS - 1), draws.random() * 0.02)
            folder = Path(scratch) / f"run{number}"
            begin = time.monotonic()
            try:
                _one(launch, folder, victim, moment)
                outcome = check(alone, folder)
                survived[victim.rstrip("1234")] += 1
                verdict = f"completed, {outcome}"
            except Broken as why:
                verdict = f"BROKEN: {why}; see {_rescue(folder)}"
            seconds = time.monotonic() - begin
            console.print(f"{number:3} {victim} killed in round {moment[0]}: {verdict} ({seconds:.1f} s)", markup=False)
    lost = runs - survived.total()
    kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(survived.items()))
    console.print(f"{survived.total()} of {runs} survived ({kinds})", style="red" if lost else "green")
    return lost


def check(alone: Path, folder: Path) -> str:
    """Compares a run with an undisturbed one, and describes its cost. Raises Broken if the results differ."""
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    if summary["status"] != "completed":
        raise Broken(f"status {summary['status']}")
    ours, control = judge.homes(folder), judge.homes(alone)
    if differing := judge.parameters(ours, control):
        raise Broken(f"{', '.join(differing)}: other parameters at the end")
    repeated = 0
    for party in ours.keys() - {SERVER}:
        _, repeats, wrong = judge.ledger(ours[party], control[party])
        if wrong:
            raise Broken(f"{party}: {wrong[0]}")
        repeated += repeats
    return f"{repeated} releases repeated"


def _one(launch: Start, folder: Path, victim: str, moment: tuple[int, float]) -> None:
    process = launch("--out", str(folder))
    try:
        _await_round(process, folder, moment[0])
        time.sleep(moment[1])
        if victim == "all":
            _kill_all(process)
            process = launch("--resume", str(folder))
        else:
            _kill(folder if victim == "server" else folder / "parties" / victim)
        _wait(process)
    finally:
        if process.poll() is None:
            _kill_all(process)


def _launch(start: Start, *how: str) -> subprocess.Popen[str]:
    sets = [part for value in SETS for part in ("--set", value)]
    file = [] if how[0] == "--resume" else [str(ROOT / "experiments" / "demo.yaml")]
    argv = [sys.executable, "-m", "colonnade", "up", *file, *how, *sets]
    return start(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _await_round(process: subprocess.Popen[str], folder: Path, round: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not any(e["kind"] == "round" and e["round"] >= round for e in read_lines(folder / "events.jsonl")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Broken(f"round {round} did not come: {_output(process)}")
        time.sleep(0.002)


def _wait(process: subprocess.Popen[str]) -> None:
    try:
        output, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        _kill_all(process)
        raise Broken(f"it hangs: {_output(process)}") from None
    if process.returncode:
        raise Broken(f"exit code {process.returncode}: {output[-1500:]}")


def _output(process: subprocess.Popen[str]) -> str:
    return (process.communicate()[0] or "")[-1500:]


def _kill(home: Path) -> None:
    os.kill(int((home / ".lock").read_text(encoding="utf-8").split()[0]), signal.SIGKILL)


def _kill_all(process: subprocess.Popen[str]) -> None:
    everyone = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for member in everyone:
        member.kill()
    psutil.wait_procs(everyone, timeout=10)
    process.wait()


def _rescue(folder: Path) -> Path:
    kept = Path(tempfile.mkdtemp(prefix="broken-")) / folder.name
    if folder.exists():
        folder.rename(kept)
    return kept


if __name__ == "__main__":
    main()
