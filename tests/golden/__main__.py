"""Runs every protocol in five ways and compares what is left with the stored record, and with another build.

    python -m tests.golden                          all protocols, against the records in tests/golden/records
    python -m tests.golden --only split fedvs       some of them
    python -m tests.golden --ways simulate up       some of the ways
    python -m tests.golden --against REVISION       numbers too: runs of that build, on this machine, must be equal
    python -m tests.golden --write                  stores the records anew

A record has what does not depend on the machine: files of a run, kinds of events, and of every ledger and capture the
kinds, shapes and lengths of messages. Numbers (losses, metrics, weights, predictions) are compared to the last bit with
those of another build, since kernels differ from one processor to the next.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

from tests.golden.tables import aligned

ROOT = Path(__file__).parents[2]
RECORDS = Path(__file__).parent / "records"
DEMOS = ROOT / "experiments"

SETTINGS = ["federation.epochs=1", "federation.public_start=true", "every_party.capture={}"]
WITHOUT_PREDICTION = {"centralized", "local"}
_UNSTABLE = {"session", ".lock", "launch.log"}  # empty or not there, as it happens
_OF_TIMING = {"log", "late", "missing", "pace", "reconnect", "leave", "join", "phases"}
"""Kinds of events that come as often as the network wants."""


def main(words: list[str] | None = None) -> int:
    """Returns 0 if nothing differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", default=protocols(), choices=protocols(), metavar="PROTOCOL")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--against", metavar="REVISION")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args(words)
    differing = 0
    with tempfile.TemporaryDirectory() as scratch, build(given.against, Path(scratch)) as other:
        for protocol in given.only:
            file = RECORDS / f"{protocol}.json"
            stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
            for way in given.ways:
                if way == "predict" and protocol in WITHOUT_PREDICTION:
                    continue
                folder = Path(scratch) / protocol / way
                found = record(ROOT, protocol, way, folder / "ours")
                if given.write:
                    stored[way] = found
                said = list(differences(stored[way], found)) if way in stored else []
                if other is not None:
                    record(other, protocol, way, folder / "theirs")
                    said += differences(numbers(folder / "theirs"), numbers(folder / "ours"))
                compared = "not compared" if way not in stored and other is None else "equal"
                print(f"{protocol} {way}: {'differs' if said else compared}", flush=True)
                print(*said[:40], sep="\n", end="\n" if said else "")
                differing += bool(said)
            if given.write:
                RECORDS.mkdir(exist_ok=True)
                file.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 1 if differing else 0


def protocols() -> list[str]:
    """All that have a demo."""
    return sorted(path.parent.name for path in DEMOS.glob("*/demo.yaml"))


def simulate(run: Callable[..., None], protocol: str, folder: Path) -> None:
    """On the virtual clock."""
    run("simulate", DEMOS / protocol / "demo.yaml", *settings(), "--out", folder / "run")


def up(run: Callable[..., None], protocol: str, folder: Path, *more: str | Path) -> None:
    """As processes."""
    run("up", DEMOS / protocol / "demo.yaml", *settings(), *more, "--out", folder / "run")


def killed(run: Callable[..., None], protocol: str, folder: Path) -> None:
    """As processes, one of which is killed in round 3 and started again."""
    checkpoints = "federation.checkpoint.rounds=1"
    up(run, protocol, folder, "--chaos", "party1: crash=3", "--set", checkpoints)


def on_tables(run: Callable[..., None], protocol: str, folder: Path) -> None:
    """On the virtual clock, with tables whose rows are found by their keys."""
    file = aligned(DEMOS / protocol / "demo.yaml", folder)
    run("simulate", file, *settings(), "--out", folder / "run")


def predict(run: Callable[..., None], protocol: str, folder: Path) -> None:
    """Some rows of a simulated run."""
    simulate(run, protocol, folder)
    ids = folder / "ids.csv"
    ids.write_text("id\n" + "".join(f"{row}\n" for row in range(40)), encoding="utf-8")
    run("predict", folder / "run", "--ids", ids, "--out", folder / "run" / "predictions.csv")


WAYS = {"simulate": simulate, "up": up, "killed": killed, "aligned": on_tables, "predict": predict}

Same = Literal["order", "numbers", "kinds"]
SAME: dict[str, Same] = {
    "simulate": "order", "up": "numbers", "killed": "kinds", "aligned": "order", "predict": "numbers"
}  # fmt: skip
"""What is the same in all runs of a way: on a network messages overtake each other, and after a kill some repeat."""


def settings() -> Iterator[str]:
    """The options that make a demo short and repeatable."""
    for one in SETTINGS:
        yield from ("--set", one)


@contextmanager
def build(revision: str | None, scratch: Path) -> Iterator[Path | None]:
    """A checkout of another revision, which runs with this environment's packages; None for none."""
    if revision is None:
        yield None
        return
    place = scratch / "build"
    subprocess.run(["git", "worktree", "add", "-q", "--detach", place, revision], cwd=ROOT, check=True)
    try:
        yield place
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", place], cwd=ROOT, check=True)


def record(tree: Path, protocol: str, way: str, folder: Path) -> dict[str, Any]:
    """Runs a protocol by the code in `tree` and describes what is left."""
    folder.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "COLONNADE_ALIGNMENTS": str(folder)}

    def run(*words: str | Path) -> None:
        command = [sys.executable, "-P", "-m", "colonnade", *map(str, words)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{protocol} {way}: {' '.join(command)}\n{done.stdout}{done.stderr}")

    WAYS[way](run, protocol, folder)
    return described(folder / "run", SAME[way])


def described(run: Path, same: Same) -> dict[str, Any]:
    """Files, events and messages of a run."""
    files = {path.relative_to(run).as_posix(): path for path in _files(run)}
    found: dict[str, Any] = {"files": [name for name in files if not _UNSTABLE & {Path(name).name}]}
    for name, path in files.items():
        if path.name == "ledger.jsonl":
            found[name] = _counted([_message(line) for line in _lines(path) if "kind" in line], same)
        elif path.name == "events.jsonl":
            kinds = [line["kind"] for line in _lines(path) if line["kind"] not in _OF_TIMING]
            found[name] = _counted(kinds, "kinds" if same == "kinds" else "numbers")
        elif path.name.startswith("capture") and same == "order":
            found[name] = path.stat().st_size
    return found


def _files(run: Path) -> Iterator[Path]:
    """The files of a run; of checkpoints the newest, since older ones are kept as the network wants."""
    for path in sorted(run.rglob("*")):
        newest = max((each.stem for each in path.parent.glob("round-*")), default="")
        if path.is_file() and (not path.name.startswith("round-") or path.stem == newest):
            yield path


def numbers(folder: Path) -> dict[str, Any]:
    """What was learnt: losses, metrics, digests of weights, predictions."""
    run = folder / "run"
    found: dict[str, Any] = {"metrics": json.loads((run / "summary.json").read_text(encoding="utf-8"))["metrics"]}
    rounds = (line for line in _lines(run / "events.jsonl") if line["kind"] == "round")
    found["losses"] = {line["round"]: line.get("loss") for line in rounds}  # of the last time, after a rollback
    for path in _files(run):
        if path.suffix != ".safetensors":
            continue
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        name = path.relative_to(run).as_posix()
        found[name] = {
            key: hashlib.sha256(repr((each.dtype, each.shape)).encode() + each.numpy().tobytes()).hexdigest()[:16]
            for key, each in tensors.items()
        }
    if (said := run / "predictions.csv").exists():
        found["predictions"] = said.read_text(encoding="utf-8").splitlines()
    return found


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Lines about what differs."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from differences(before.get(key), now.get(key), f"{place}/{key}")
    elif before != now:
        old, new = (json.dumps(each, indent=0).splitlines() for each in (before, now))
        changed = [line for line in difflib.unified_diff(old, new, lineterm="", n=0) if line[:3] not in ("---", "+++")]
        yield f"  {place}: " + " ".join(changed[:12])


def _message(line: dict[str, Any]) -> str:
    """A line of a ledger without times, numbers and hashes."""
    kept = {key: line.get(key) for key in ("kind", "to", "fields", "bytes", "rows", "mechanism") if key in line}
    return json.dumps(kept, sort_keys=True)


def _counted(lines: list[str], same: Same) -> Any:
    """Lines with the number of equal ones in turn, with the number of all equal ones, or each once."""
    if same == "kinds":
        return sorted(set(lines))
    if same == "numbers":
        return dict(sorted(Counter(lines).items()))
    runs: list[list[Any]] = []
    for line in lines:
        if runs and runs[-1][0] == line:
            runs[-1][1] += 1
        else:
            runs.append([line, 1])
    return runs


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    sys.exit(main())
