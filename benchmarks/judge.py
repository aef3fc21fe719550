"""Compares a run under trouble with an undisturbed one, the control: parameters, ledgers and results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from colonnade.common.conversation.conversation import SERVER
from colonnade.common.run.json_text import read_lines

_OF_SESSIONS = {"KeyOffer", "KeyProof"}  # new in each session: their number and sizes differ
Key = tuple[str, str, int]
"""Kind, part and round of an event."""


def homes(run: Path) -> dict[str, Path]:
    """Folders of the members of a run of `up`."""
    return {SERVER: run, **{path.name: path for path in sorted((run / "parties").iterdir())}}


def parameters(ours: Mapping[str, Path], control: Mapping[str, Path]) -> list[str]:
    """The members whose newest checkpoint differs from the control's in its round or a byte."""
    differing = []
    for name in control:
        one, other = (max((each[name] / "checkpoints").glob("round-*.safetensors")) for each in (ours, control))
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            differing.append(name)
    return differing


def ledger(ours: Path, control: Path) -> tuple[int, int, list[str]]:
    """A party's entries, its repeats, and faults: entries missing or beyond the control's, repeats of nothing."""
    found, once = ([entry for entry in read_lines(at / "ledger.jsonl")
                    if entry.get("kind", "KeyOffer") not in _OF_SESSIONS] for at in (ours, control))  # fmt: skip
    repeats = [_release(entry) for entry in found if entry.get("repeat")]
    first = Counter(_release(entry) for entry in found if not entry.get("repeat"))
    expected, wrong = Counter(map(_release, once)), []
    if lost := expected - first:
        wrong.append(f"{lost.total()} entries of the control are missing, such as {next(iter(lost))}")
    if more := first - expected:
        wrong.append(f"{more.total()} entries that the control has not, such as {next(iter(more))}")
    if invented := set(repeats) - first.keys():
        wrong.append(f"{len(invented)} repeats of what never left")
    return first.total(), len(repeats), wrong


def _release(entry: dict[str, Any]) -> str:
    """An entry without the fields that differ between any two runs."""
    return json.dumps({key: value for key, value in entry.items() if key not in ("time", "repeat", "chain")})


def key_of(event: Mapping[str, Any]) -> Key:
    return event["kind"], str(event.get("part", "")), int(event["round"])


def outcome(event: Mapping[str, Any]) -> str:
    """Numbers of a round or an evaluation that must be equal whenever it is repeated."""
    names = sorted(name for name in event if name == "loss" or "accuracy" in name or name.endswith("loss"))
    return json.dumps({name: event[name] for name in names})


def results(seen: Mapping[Key, str], control: Path) -> tuple[int, list[str]]:
    """Number of rounds and evaluations compared with the control's, and those that differ or are missing."""
    events = (event for event in read_lines(control / "events.jsonl") if event["kind"] in ("round", "evaluation"))
    expected = {key_of(event): outcome(event) for event in events}
    wrong = [f"{key}: {seen.get(key)} instead of {value}" for key, value in expected.items() if seen.get(key) != value]
    return len(expected), wrong + [f"{key} is not in the control" for key in seen.keys() - expected.keys()]
