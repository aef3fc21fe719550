"""Readers of configurations: whole files, single settings, rosters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from colonnade.cli.keys.pins import RosterText
from colonnade.common.errors import ColonnadeError
from colonnade.common.parsing.file import load, parse
from colonnade.common.parsing.yaml_tree import override
from tests.fuzz.engine import Case, Target
from tests.fuzz.mutations.trees import mutate_yaml
from tests.fuzz.targets.place import Place

_EXPERIMENTS = Path(__file__).parents[3] / "experiments"
_WHOLE = b"""federation:
  id: clinic
  parties: {ada: {columns: 0-3}, bob: {columns: 4-7}}
  classes: 2
  rounds: 20
  batch: 32
  seed: 5
  protocol: {name: split, embedding: 8}
  compress: {up: {bits: 4, scale: column}, down: {top: 0.1}}
  keys: {trim: true, case: fold}
  align: psi
  timeouts: {answer: 30}
server:
  labels: {source: csv, path: labels.csv, column: outcome, key: id}
  optimiser: {name: adam, lr: 0.01}
  head: {name: mlp, hidden: [8]}
  privacy: {answers: {clip: 0.1, head_clip: 1, noise_multiplier: 20}}
every_party:
  data: {source: csv, path: table.csv, key: id, scale: auto, missing: mean}
  model: {name: mlp, hidden: [16, 8]}
  optimiser: {name: sgd, lr: 0.1, momentum: 0.9}
  checkpoint: {rounds: 10}
parties:
  bob: {data: {source: parquet, path: table.parquet, key: id}}
"""
_ROSTER = b"""# the members
federation:
  id: clinic   # one word
  server: "sha256:%s"
  parties:
    ada: "sha256:%s"
    bob: "..."
  classes: 2
""" % (b"ab" * 32, b"cd" * 32)
_LISTED = b"federation:\n  id: clinic\n  parties:\n  - ada\n  - bob\n  protocol: split\n"
_FLOWING = b"federation: {id: clinic, parties: [ada, bob], protocol: split}\n"


def _configs() -> list[Case]:
    files = [*sorted(_EXPERIMENTS.glob("*.yaml")), *sorted(_EXPERIMENTS.glob("quick/*.yaml"))[:4]]
    return [Case("", _WHOLE), *(Case("", path.read_bytes()) for path in files if path.stat().st_size < 4000)]


def _read_configs() -> Callable[[str, bytes], object]:
    place = Place("configs")

    def read(_variant: str, data: bytes) -> object:
        found = load(place.hold({"config.yaml": data}) / "config.yaml")
        place.check({"config.yaml": data})
        return found

    return read


_SETTINGS = (
    b"federation.protocol.rho=1", b"federation.classes=[1, {a: b}]", b"server.optimiser=adam", b"model.hidden=[3]",
    b"parties.bob.data.path=x.csv", b"federation.parties=[ada]", b"every_party.data={source: csv}", b"a.b.c.d.e=1",
)  # fmt: skip


def _read_settings() -> Callable[[str, bytes], object]:
    def read(variant: str, data: bytes) -> object:
        tree = {"federation": {"protocol": "split", "classes": 2}, "server": None, "parties": {"bob": 1}}
        override(tree, data.decode(errors="surrogateescape"))
        if variant == "parsed":
            parse(tree)
        return tree

    return read


def _read_rosters() -> Callable[[str, bytes], object]:
    place = Place("rosters")

    def read(variant: str, data: bytes) -> object:
        files = {"config.yaml": data}
        roster = RosterText(place.hold(files) / "config.yaml")
        pins = dict.fromkeys(["ada", "server"] if variant == "two" else roster.roster, "sha256:" + "ef" * 32)
        _ = roster.name, [roster.pin(name) for name in roster.roster]
        changed = roster.pinned({name: pin for name, pin in pins.items() if name in roster.roster})
        place.check(files)
        return changed

    return read


def _rosters() -> list[Case]:
    return [Case(variant, data) for data in (_ROSTER, _LISTED, _FLOWING) for variant in ("two", "all")]


_small = partial(Target, errors=(ColonnadeError,), mutate=mutate_yaml)

TARGETS = (
    _small("configs", _read_configs, _configs, count=100),
    _small("settings", _read_settings, lambda: [Case(v, d) for d in _SETTINGS for v in ("", "parsed")], count=150),
    _small("rosters", _read_rosters, _rosters, count=100),
)
