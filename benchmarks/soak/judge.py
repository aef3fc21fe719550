"""Compares the soak with an undisturbed run: parameters, results, ledgers, files, exit codes and errors."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.soak.authority import colonnade
from benchmarks.soak.members import Life
from benchmarks.soak.record import outcome
from benchmarks.soak.schedule import MEMBERS, PARTIES, SERVER
from colonnade.common.run.json_text import read_lines

OF_SESSIONS = {"KeyOffer", "KeyProof"}  # new in each session: their number and sizes differ
# Exit codes after a signal of the soak, the other end's failure, and a failure of the machine (a full disk).
FORESEEN_CODES = {0, 3, 4, 130, -9, -15}
NUMBERS = re.compile(r"sha256:[0-9a-f…]+|\b[0-9]+(\.[0-9]+)?\b")
_ERROR = re.compile(r"^error: (.*)", re.MULTILINE)
_NOISE = re.compile(r"Traceback|\bE0000|Exception ignored|never (awaited|retrieved)|Warning:|core dumped|Segmentation")


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("round-*.safetensors"))


def parameters(soak: dict[str, Path], control: dict[str, Path]) -> dict[str, bool]:
    """For every member, True if its newest checkpoint equals that of the control byte by byte."""
    return {
        name: newest(soak[name]).name == newest(control[name]).name
        and newest(soak[name]).read_bytes() == newest(control[name]).read_bytes()
        for name in MEMBERS
    }


def results(seen: dict[tuple[str, str, int], str], control: Path) -> tuple[int, list[str]]:
    """Number of rounds and evaluations compared with the control's, and those that differ or are missing."""
    expected = {
        (event["kind"], str(event.get("part", "")), int(event["round"])): outcome(event)
        for event in read_lines(control / "events.jsonl")
        if event["kind"] in ("round", "evaluation")
    }
    differing = [
        f"{key}: {seen.get(key)} instead of {value}" for key, value in expected.items() if seen.get(key) != value
    ]
    return len(expected), differing + [f"{key} is not in the control" for key in seen.keys() - expected.keys()]


def ledgers(soak: dict[str, Path], control: dict[str, Path]) -> tuple[dict[str, Any], list[str]]:
    """Entries and repeats of every party, and faults: a broken chain, or entries beyond the control's."""
    found, wrong = {}, []
    for name in PARTIES:
        said = " ".join(colonnade("ledger", soak[name], "--verify").split())
        entries, once = (_entries(at[name]) for at in (soak, control))
        repeats = [_release(entry) for entry in entries if entry.get("repeat")]
        first = [_release(entry) for entry in entries if not entry.get("repeat")]
        expected = Counter(map(_release, once))
        if lost := expected - Counter(first):
            wrong.append(f"{name}: {lost.total()} entries of the control are missing, such as {next(iter(lost))}")
        if more := Counter(first) - expected:
            wrong.append(f"{name}: {more.total()} entries that the control has not, such as {next(iter(more))}")
        if invented := set(repeats) - set(first):
            wrong.append(f"{name}: {len(invented)} repeats of what never left")
        found[name] = {"entries": len(first), "repeats": len(repeats), "chain": said}
    return found, wrong


def _entries(folder: Path) -> list[dict[str, Any]]:
    messages = (entry for entry in read_lines(folder / "ledger.jsonl") if "kind" in entry)
    return [entry for entry in messages if entry["kind"] not in OF_SESSIONS]


def _release(entry: dict[str, Any]) -> str:
    """An entry without the fields that differ between any two runs."""
    return json.dumps({key: value for key, value in entry.items() if key not in ("time", "repeat", "chain")})


def orphans(soak: dict[str, Path], control: dict[str, Path], scratch: Path) -> list[str]:
    """Files that the control does not have, and temporary files of members."""
    left = [str(path.relative_to(scratch.parent)) for path in scratch.rglob("*") if path.is_file()]
    for name in MEMBERS:
        kept = {_shape(path, control[name]) for path in _files(control[name], name)}
        extra = [path for path in _files(soak[name], name) if _shape(path, soak[name]) not in kept]
        left += [f"{name}/{path.relative_to(soak[name])}" for path in extra]
    return left


def _files(folder: Path, name: str) -> Iterable[Path]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if name != SERVER or path.relative_to(folder).parts[0] != "parties"]


def _shape(path: Path, folder: Path) -> str:
    return NUMBERS.sub("N", re.sub(r"\d+", "0", path.relative_to(folder).as_posix()))


def errors(logs: dict[str, Path]) -> tuple[Counter[str], list[str]]:
    """Errors that members printed, without numbers, and lines that no log should have."""
    said: Counter[str] = Counter()
    noise = []
    for name, log in logs.items():
        text = log.read_text(errors="replace", encoding="utf-8")
        said.update(NUMBERS.sub("N", found)[:160] for found in _ERROR.findall(text))
        noise += [f"{name}: {line[:300]}" for line in text.splitlines() if _NOISE.search(line)]
    return said, noise


def codes(lives: list[Life]) -> tuple[dict[str, dict[str, int]], list[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in MEMBERS}
    for life in lives:
        if life.code is not None:
            found[life.member][str(life.code)] += 1
    odd = [
        f"{life.member} ended with code {life.code} at {life.ended:.1f}"
        for life in lives
        if life.code is not None and (life.code not in FORESEEN_CODES or (life.code < 0 and not life.ordered))
    ]
    return {name: dict(counts) for name, counts in found.items()}, odd
