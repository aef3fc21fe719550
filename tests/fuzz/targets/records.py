"""Readers of small files that a member keeps: records in JSON, ledgers, sessions, tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from colonnade.client.member.pin import Pin
from colonnade.client.transcript.capture import read_capture
from colonnade.common.alignment.limits import NAME as FOREIGN
from colonnade.common.alignment.limits import NAME as TESTED
from colonnade.common.alignment.limits import DailyLimits, ForeignKeys
from colonnade.common.config.privacy import ResponseNoiseConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.errors import ColonnadeError
from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.ledger import Chain, Ledger, newest, verify
from colonnade.common.run.checkpoints import Checkpoints
from colonnade.common.run.json_text import read_lines
from colonnade.common.run.run_folder import STAMP, RunFolder, read_record
from colonnade.common.wire.codec import Codec
from colonnade.common.wire.frame import pack
from colonnade.reports.records.ledgers import read_books_of
from colonnade.reports.records.run import read_run
from colonnade.server.member.hub import kept
from colonnade.server.member.saving import read_committed
from colonnade.server.prediction.serving.tokens import Tokens
from colonnade.server.privacy import open_releases
from tests.fuzz.engine import Broken, Case, Target
from tests.fuzz.mutations.protobuf import mutate_protobuf
from tests.fuzz.mutations.trees import mutate_json, mutate_lines
from tests.fuzz.targets.place import Place
from tests.fuzz.targets.wire import sample
from tests.support.federation import config

Reader = Callable[[Path], object]

_NOISE = ResponseNoiseConfig(clip=0.1, head_clip=1, noise_multiplier=20)
_FEDERATION = config({"name": "split", "embedding": 6}).federation
_SCHEDULE = Schedule(_FEDERATION, 1797, 0)


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def _pin(path: Path) -> object:
    return Pin("ada", path.parent, Checkpoints(path.parent / "checkpoints")).run


def _committed(path: Path) -> object:
    found = read_committed(path)
    if not all(type(number) is int for number in found):
        raise Broken(f"{found}")
    return found


def _format(path: Path) -> object:
    run = RunFolder(path.parent)
    run.refuse_unreadable()
    return run.number(), run.virtual, run.base(), run.simulated_base()


def _releases(path: Path) -> object:
    found = open_releases(_NOISE, _SCHEDULE, 4, 20, path.parent, begun=True)
    if found is None or found.most < 0:
        raise Broken("releases that are none")
    return found.most


def _session(path: Path) -> object:
    found = kept(path)
    if not 0 <= found < (1 << 32) - 1:
        raise Broken(f"{found}")
    return found


_JSON: Mapping[str, tuple[str, bytes, Reader]] = {
    "pin": (
        "pinned.json",
        _encoded({"run": "r1", "session": 12, "committed": True, "backed_off": 1, "entered": 0, **STAMP}),
        _pin,
    ),
    "foreign keys": (
        FOREIGN,
        _encoded({"begun": 2, "settled": True, "lists": {"bob": {"ab" * 32: 7}, "server": {}}}),
        lambda path: ForeignKeys("ada", 10, "most", path).expect("bob", 7),
    ),
    "tested": (
        TESTED,
        _encoded({"ab" * 32: {"490000": [1, 7], "490001": [2, 40]}, "cd" * 32: {}}),
        lambda path: DailyLimits(path, {"bob": "ab" * 32}, now=lambda: 490001 * 3600.0).tested("bob"),
    ),
    "committed": ("committed.json", _encoded({"round": 8, "best": 4, "sound": 8, "backed_off": 0}), _committed),
    "answers": (
        "answers.json",
        _encoded({"ceiling": 9, "accounting": _NOISE.accounting, "noise_multiplier": 20.0, "seeded": _NOISE.seeded}),
        _releases,
    ),
    "run": ("run.json", _encoded({"run": "r1", "federation": "f", **STAMP}), _format),
    "launch": ("launch.json", _encoded({"base": "/x", "clock": "virtual"}), _format),
    "session": ("session", b"1700000000", _session),
    "record": ("any.json", _encoded({"format": 1, "made": 0.5, "a": [1, None, {"b": "c"}]}), read_record),
}


def _read_json() -> Callable[[str, bytes], object]:
    place = Place("records")

    def read(variant: str, data: bytes) -> object:
        name, _, reader = _JSON[variant]
        folder = place.hold({name: data})
        try:
            return reader(folder / name)
        finally:
            place.check({name: data})

    return read


def _ledger() -> bytes:
    """As a party keeps it: releases, reservations, and a line that was cut short."""
    folder = Place("ledger-seed").hold({})
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ledger.jsonl"
    path.unlink(missing_ok=True)
    chain = Chain(path)
    chain.append({"time": 1.0, "reserved": 4, "noise_multiplier": 1.5})
    release = {"kind": "Embedding", "to": "server", "bytes": 24, "rows": 3, "mechanism": "gaussian, delta 1e-05"}
    for round in (1, 2, 3):
        chain.append(
            {"time": 2.0, "round": round, **release, "about": {"turn": 1}, "fields": {}, "epsilon": 0.1 * round}
        )
    chain.append({"time": 3.0, "returned": 1, "noise_multiplier": 1.5})
    chain.close()
    return path.read_bytes() + b'{"time": 4.0, "rou'


def _read_ledger() -> Callable[[str, bytes], object]:
    place = Place("ledger")

    def read(_variant: str, data: bytes) -> object:
        path = place.hold({"ledger.jsonl": data}) / "ledger.jsonl"
        for entry in read_lines(path):
            if not isinstance(entry, dict):
                raise Broken("a line that is no object")
        verdict = verify(path)
        if verdict.broken is None and verdict.lines and verdict.head != newest(path):
            raise Broken(f"{verdict} and {newest(path)}")
        read_books_of(path)
        for reader in (lambda: Ledger(path, 2), lambda: Budget(path, 100, 10, noise_multiplier=1.5).releases):
            reader()
        place.check({"ledger.jsonl": data})
        return verdict

    return read


_CONFIG = b"""federation: {id: f, parties: [ada, bob], protocol: {name: split}, classes: 2}
server: {labels: {source: sklearn}}
"""
_SUMMARY = _encoded(
    {
        "status": "finished", "federation": "f", "protocol": "split", "parties": ["ada", "bob"], "rounds": 2,
        "seconds": 1.5,
        "metrics": {"accuracy": 0.5}, "bytes": {"up": {"wire": 1}}, "missing": {"ada": 0}, "late": {}, "timeline": {},
    }
)  # fmt: skip
_EVENTS = b"\n".join(
    _encoded(event)
    for event in (
        {"kind": "listening", "time": 1.0, "waiting_for": ["ada", "bob"]},
        {"kind": "begin", "time": 2.0, "parties": ["ada", "bob"], "session": 3},
        {"kind": "joined", "time": 2.0, "party": "ada"},
        {"kind": "round", "time": 3.0, "round": 1, "loss": 0.5, "bytes_up": 10, "bytes_down": 5},
        {"kind": "evaluation", "time": 3.5, "round": 1, "validation_accuracy": 0.5},
        {"kind": "missing", "time": 3.6, "party": "bob", "round": 1},
        {"kind": "end", "time": 4.0, "round": 1},
    )
)


def _read_folder() -> Callable[[str, bytes], object]:
    place = Place("run-folder")

    def read(variant: str, data: bytes) -> object:
        files = {"summary.json": _SUMMARY, "events.jsonl": _EVENTS, "server.yaml": _CONFIG}
        if variant != "summary.json":
            del files["summary.json"]
        files |= {variant: data}
        found = read_run(place.hold(files))
        found.timeline()
        place.check(files)
        return found.parties

    return read


def _folders() -> list[Case]:
    return [Case("summary.json", _SUMMARY), Case("events.jsonl", _EVENTS), Case("server.yaml", _CONFIG)]


_TOKENS = b"# callers\ndefault " + b"x" * 43 + b"\nother " + b"y" * 40 + b"  # since May\n"


def _read_tokens() -> Callable[[str, bytes], object]:
    place = Place("tokens")
    return lambda _variant, data: Tokens.read(place.hold({"serve.tokens": data}) / "serve.tokens", 10)


def _captures() -> list[Case]:
    from colonnade.client.transcript.capture import HEAD
    from colonnade.common.contracts.registry import CONTRACTS

    kinds = CONTRACTS["split"].kinds
    frames = [pack(sample(kind), 0, Codec(kinds)) for kind in kinds.values()]
    each = [HEAD.pack(way, 5, len(frame)) + frame for way, frame in zip((0, 1, 0), frames, strict=False)]
    return [Case("file", b"".join(each)), *(Case("frame", frame) for frame in frames)]


def _read_captures() -> Callable[[str, bytes], object]:
    from colonnade.client.transcript.capture import HEAD

    place = Place("captures")

    def read(variant: str, data: bytes) -> object:
        if variant == "frame":  # with a head as it has to be
            data = HEAD.pack(len(data) % 2, 5, len(data)) + data
        return list(read_capture(place.hold({"capture.bin": data}) / "capture.bin", _FEDERATION))

    return read


_ERRORS = (ColonnadeError,)
_small = partial(Target, errors=_ERRORS)

TARGETS = (
    _small("records", _read_json, lambda: [Case(k, d) for k, (_, d, _) in _JSON.items()], mutate=mutate_json),
    _small("ledgers", _read_ledger, lambda: [Case("", _ledger())], mutate=mutate_lines, count=150),
    _small("runs", _read_folder, _folders, mutate=mutate_lines, count=150),
    _small("tokens", _read_tokens, lambda: [Case("", _TOKENS)], count=300),
    _small("captures", _read_captures, _captures, mutate=mutate_protobuf, count=300),
)
