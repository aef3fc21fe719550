"""What a run has left in its folder: `form`, which is the same on every machine, and `numbers`, the same on one.

Form is files, keys of records, fields of events, and the messages of ledgers and captures with shapes and lengths.
Numbers are losses, metrics, epsilon, weights, predictions, and the fractions in messages. Lines that several members
have alike are told once.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open

from tests.golden.frames import Letter, letters

Clock = Literal["virtual", "real"]
"""On the real one members overtake each other, and a kill repeats messages: each is told once, as it first came."""

# Numbers of alignments, and of rounds: which checkpoints are kept is up to the disk.
_RANDOM = re.compile(r"[0-9a-f]{16,}|(?<=round-)\d+")
# Files of processes, not of a run.
_BESIDE = re.compile(r"\.lock$|\.log$|log\.txt$")
# Events that come as the network has it, fields of events that may be missing, and those of a ledger's lines.
_OF_TIMING = {"checkpoint_failed", "late", "log", "missing", "pace", "reconnect"}
_OF_EVENTS = {"kind", "time", "phases", "slowest"}
_OF_ENTRIES = {"about", "bytes", "chain", "fields", "kind", "mechanism", "repeat", "round", "rows", "time", "to"}
# Their encodings differ in length by a few bytes.
_SIGNED = re.compile("certificate|signature")
# Tensors that no seed determines: the state of a generator that threads share, and shares that hide values.
_DRAWN = {"random", "shares"}


def form(folder: Path, clock: Clock, *, ordered: bool = True) -> dict[str, Any]:
    """Of `run` in a folder, and of the alignments in `kept` beside it; not `ordered`: messages in no order."""
    found: dict[str, dict[str, list[str]]] = {"files": {}, "records": {}, "events": {}, "ledger": {}, "messages": {}}

    def add(part: str, member: str, lines: Iterable[str]) -> None:
        found[part].setdefault(member, []).extend(lines)

    each = _once if clock == "real" else _in_turn
    for path in _files(folder):
        member, name = _place(path.relative_to(folder))
        add("files", member, [name])
        if path.name == "events.jsonl":
            lines = [line for line in _lines(path) if line["kind"] not in _OF_TIMING]
            add("records", member, [f"events.jsonl {_event(line)}" for line in lines])
            add("events", member, _in_turn(line["kind"] for line in lines) if clock == "virtual" else [])
        elif path.name == "ledger.jsonl":
            lines = list(_lines(path))
            add("ledger", member, each(_entry(line) for line in lines if "kind" in line))
            add("ledger", member, _controls(line for line in lines if "kind" not in line))
        elif path.name.startswith("capture"):
            sent = [(letter.way, _letter(letter, clock)) for letter in letters(path)]
            for ways in [("out",), ("in",)] if clock == "real" else [("out", "in")]:
                add("messages", member, each(line for way, line in sent if way in ways))
        elif path.suffix in (".json", ".csv") and not path.name.startswith("round-"):
            add("records", member, [f"{name}: {_keys(path)}"])
    in_order = {"events", "ledger", "messages"} if ordered else set()
    return {
        part: (_alike if part in in_order else _shared)(members)
        for part, members in found.items()
        if any(members.values())
    }


def numbers(folder: Path, clock: Clock) -> dict[str, Any]:
    """Of the same, by place."""
    found: dict[str, Any] = {}
    for path in _files(folder):
        place = str(path.relative_to(folder))
        if path.name == "summary.json":
            summary = json.loads(path.read_text(encoding="utf-8"))
            cost = () if clock == "real" else ("epsilon", "person")  # rounds that a kill repeats cost again
            found[place] = {key: summary[key] for key in ("metrics", "model", *cost) if key in summary}
        elif path.name == "events.jsonl":
            rounds = {str(line["round"]): line["loss"] for line in _lines(path) if "loss" in line}
            found.update({f"{place} losses": rounds} if rounds else {})  # of the last time, after a rollback
        elif path.suffix == ".csv":
            found[place] = path.read_text(encoding="utf-8").splitlines()
        elif path.name.startswith("capture"):
            sent = [f"{letter.kind} {_digest(letter.floats)}" for letter in letters(path) if letter.floats]
            found[place] = sorted(set(sent)) if clock == "real" else sent
        elif path.suffix == ".safetensors":
            with safe_open(path, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in sorted(file.keys()) if key not in _DRAWN}
            found[place] = {
                f"{key}: {value.dtype} {list(value.shape)}": _digest(value.numpy().tobytes())
                for key, value in tensors.items()
            }
    return found


def _files(folder: Path) -> Iterator[Path]:
    """In order; of checkpoints the newest, since which others remain is up to the disk."""
    for path in sorted(path for place in ("kept", "run") for path in (folder / place).rglob("*")):
        newest = max((each.stem for each in path.parent.glob("round-*")), default="")
        if path.is_file() and not _BESIDE.search(path.name) and path.stem >= newest * path.stem.startswith("round-"):
            yield path


def _place(path: Path) -> tuple[str, str]:
    """Whose a file is, and its name without what is drawn."""
    parts = path.parts
    if parts[:2] == ("run", "parties"):
        return parts[2], _RANDOM.sub("*", "/".join(parts[3:]))
    if parts[0] == "kept":
        return parts[1], _RANDOM.sub("*", "/".join(("kept", *parts[2:])))
    return "server", _RANDOM.sub("*", "/".join(parts[1:]))


def _event(line: dict[str, Any]) -> str:
    return f"{line['kind']}: {', '.join(sorted(line.keys() - _OF_EVENTS))}"


def _entry(line: dict[str, Any]) -> str:
    """A message in a ledger: all that is no time, round, hash or cost, and that a rollback does not change."""
    signed = [name for name in line["fields"] if _SIGNED.search(name)]
    fields = {name: shape[:-1] if name in signed else shape for name, shape in line["fields"].items()}
    length = "signed" if signed else line["bytes"]
    told = (
        f"{line['kind']} to {line['to']} {fields} {length} bytes {line['rows']} rows, {line['mechanism'] or 'public'}"
    )
    others = ", ".join(sorted([*line.get("about", ()), *(line.keys() - _OF_ENTRIES)]))
    return f"{told}; {others}".replace("'", "")


def _controls(lines: Iterable[dict[str, Any]]) -> list[str]:
    """The fields of every other kind of line, of all of its kind together."""
    fields: dict[str, set[str]] = {}
    for line in lines:
        fields.setdefault(line.get("control", "other"), set()).update(line.get("about", line))
    return [f"{kind}: {', '.join(sorted(names))}" for kind, names in sorted(fields.items())]


def _letter(letter: Letter, clock: Clock) -> str:
    told = f"{letter.way} {letter.kind} {letter.tensors}".replace("'", "")
    return re.sub(r"(uint8 )\[[^]]*\]", r"\1[..]", told) if clock == "real" else f"{told} {letter.size} bytes"


def _keys(path: Path) -> str:
    """The names in a record, or the heading of a table."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return text.splitlines()[0]
    read = json.loads(text)
    return ", ".join(sorted(read)) if isinstance(read, dict) else type(read).__name__


def _in_turn(lines: Iterable[str]) -> list[str]:
    return [f"{len(list(same))} x {line}" for line, same in groupby(lines)]


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _alike(members: dict[str, list[str]]) -> dict[str, list[str]]:
    """Lines in order, by the names of all who have the same ones."""
    names: dict[str, list[str]] = {}
    for member, lines in sorted(members.items()):
        names.setdefault("\n".join(lines), []).append(member)
    return {" ".join(who): lines.split("\n") for lines, who in names.items()}


def _shared(members: dict[str, list[str]]) -> dict[str, list[str]]:
    """Lines without an order, by the names of all who have them."""
    names: dict[str, list[str]] = {}
    for member, lines in sorted(members.items()):
        for line in sorted(set(lines)):
            names.setdefault(line, []).append(member)
    return {" ".join(who): sorted(line for line in names if names[line] == who) for who in names.values()}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, path.read_text(encoding="utf-8").splitlines())
