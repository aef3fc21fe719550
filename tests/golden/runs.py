"""Runs of every protocol by a build: the working tree, or another commit's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.golden.federations import write
from tests.golden.left import Clock
from tests.golden.worker import perform

ROOT = Path(__file__).parents[2]
BUILDS = ROOT / "build" / "golden"

SIMULATED = ("simulate", "federation.yaml", "--out", "run")
KILLED = ("up", "federation.yaml", "--chaos", "party1: crash=2", "--out", "run")  # `up` starts it again
RESUMED = ("up", "--resume", "run", "--set", "federation.rounds=6")
PREDICTED = ("--predict", "ids.csv")
WITHOUT_PREDICTION = ("centralized", "local")


class Way(NamedTuple):
    """A way to run a protocol.

    Attributes:
        aligned: the members find their common rows by keys.
        commands: words of the command line, one after the other in one folder.
        clock: of these runs.
    """

    aligned: bool
    commands: Sequence[Sequence[str]]
    clock: Clock


WAYS = {
    "simulate": Way(False, [SIMULATED], "virtual"),
    "aligned": Way(True, [SIMULATED], "virtual"),
    "up": Way(True, [KILLED, [*RESUMED, *PREDICTED]], "real"),
}


class RunError(Exception):
    """A command did not end with 0."""


class Runs:
    """Runs of one build, one after the other.

    Args:
        tree: the build; None is the working tree, in this process and its main thread.
        folder: for the runs; a subfolder each.
        processes: the members of `up` are processes, until one was killed; else threads.
    """

    def __init__(self, tree: Path | None, folder: Path, *, processes: bool = False) -> None:
        self._tree, self._folder, self._processes = tree, folder, processes
        self._worker: subprocess.Popen[str] | None = None

    def __enter__(self) -> Runs:
        if self._tree is not None:
            self._worker = subprocess.Popen(
                [sys.executable, "-P", self._tree / "tests" / "golden" / "worker.py"],
                cwd=self._tree, env={**os.environ, "PYTHONPATH": str(self._tree), "OMP_NUM_THREADS": "1"},
                text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip
        self._thread = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        if self._worker is not None:
            self._worker.communicate()

    def begin(self, protocol: str, way: str) -> Future[Path]:
        """Runs, in a worker when the runs before are over. The result is the folder; RunError if a command fails."""
        if self._worker is not None:
            return self._thread.submit(self._run, protocol, way)
        done: Future[Path] = Future()
        try:
            done.set_result(self._run(protocol, way))
        except RunError as failed:
            done.set_exception(failed)
        return done

    def _run(self, protocol: str, way: str) -> Path:
        folder = self._folder / protocol / way
        folder.mkdir(parents=True)
        write(protocol, folder, aligned=WAYS[way].aligned)
        for words in WAYS[way].commands:
            known = [word for word in words if protocol not in WITHOUT_PREDICTION or word not in PREDICTED]
            job = {"folder": str(folder), "words": known, "processes": self._processes and words is KILLED}
            code, said = perform(job) if self._worker is None else self._ask(self._worker, job)
            if code:
                raise RunError(f"  colonnade {' '.join(known)}, by {self._tree or ROOT}: code {code}\n{said}")
        return folder

    def _ask(self, worker: subprocess.Popen[str], job: dict[str, Any]) -> tuple[int, str]:
        assert worker.stdin and worker.stdout
        print(json.dumps(job), file=worker.stdin, flush=True)
        if not (answer := worker.stdout.readline()):
            raise RunError(f"  the worker of {self._tree} has ended")
        done = json.loads(answer)
        return done["code"], done["said"]


def build(revision: str) -> Path | None:
    """Another commit's tree, under build/; None if it is not in this repository."""
    if not (ROOT / ".git").exists():
        return None
    asked = ["git", "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    found = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        return None
    tree = BUILDS / found.stdout.strip()
    if not tree.exists():
        BUILDS.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=BUILDS))
        archive = subprocess.run(["git", "archive", tree.name], cwd=ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "x", "-C", scratch], input=archive.stdout, check=True)
        scratch.rename(tree)  # whole, or not there
    return tree
