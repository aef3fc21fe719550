"""Readers of tensors that a member keeps: checkpoints, the run cache, kept alignments, noisy labels, encoders.

Where a file has a checksum it is mended after a mutation, in variants that say so: else nothing behind it were reached.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

from colonnade.common.aggregation.summed_sets import MemberRecord
from colonnade.common.alignment import store as kept
from colonnade.common.alignment.exponent import RaisedElements
from colonnade.common.alignment.store import AlignmentRecord, kept_rows
from colonnade.common.config.privacy import LabelPrivacyConfig
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features, TypedColumn
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.errors import ColonnadeError
from colonnade.common.messaging.raw import to_tensor
from colonnade.common.run import checkpoints, run_cache
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.state import State
from colonnade.server.privacy import NoisyLabelFile
from tests.fuzz.engine import Broken, Case, Target, unguarded
from tests.fuzz.mutations.trees import mutate_json, mutate_safetensors
from tests.fuzz.targets.place import Place

_OWNER = Owner("ada", "r1", {"classes": "ab" * 32})


def _written(name: str, write: Callable[[Path], object]) -> dict[str, bytes]:
    """The files that a writer leaves."""
    folder = Place(f"{name}-seed").hold({})
    folder.mkdir(parents=True, exist_ok=True)
    write(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _state(restored: Any = None) -> State:
    state = State(restored)
    model = state.keep("model", lambda: nn.Linear(2, 1))
    state.keep("optimiser", lambda: torch.optim.Adam(model.parameters()))
    state.keep("counts", lambda: {"releases": 3})
    state.keep("duals", lambda: torch.zeros(3))
    state.keep("draws", lambda: torch.Generator().manual_seed(1))
    return state


def _checkpoint() -> dict[str, bytes]:
    return _written("checkpoint", lambda folder: Checkpoints(folder).save(3, _state().capture(), _OWNER))


_RECORD, _TENSORS = "round-00000003.json", "round-00000003.safetensors"


def _checkpoints() -> list[Case]:
    files = _checkpoint()
    both = [Case("record", files[_RECORD]), Case("tensors", files[_TENSORS])]
    return [*both, *(Case(f"{case.variant}, mended", case.data) for case in both)]


def _read_checkpoints() -> Callable[[str, bytes], object]:
    place, files = Place("checkpoints"), _checkpoint()

    def read(variant: str, data: bytes) -> object:
        what, _, mended = variant.partition(", ")
        changed = {**files, (_RECORD if what == "record" else _TENSORS): data}
        if mended:
            changed[_RECORD] = _mended(changed)
        found = Checkpoints(place.hold(changed))
        found.usable()
        found.run(), found.config()
        found.refuse_others(replace(_OWNER, run=""))
        _state(found.load(3, _OWNER))
        place.check(changed)
        return found

    return read


def _mended(files: Mapping[str, bytes]) -> bytes:
    try:
        record = json.loads(files[_RECORD])
        record["tensors"] = hashlib.sha256(files[_TENSORS]).hexdigest()
        record.pop("checksum", None)
        return json.dumps({**record, "checksum": checkpoints.checksum_of(record)}).encode()
    except (ValueError, TypeError, AttributeError, RecursionError):
        return files[_RECORD]


# The run cache, and what is kept in it.


class _Keys:
    digest = b"k" * 32


def _cache_files(name: str) -> dict[str, bytes]:
    def write(folder: Path) -> None:
        cache = RunCache(folder)
        if name == "alignment":
            record = AlignmentRecord(cache, _Keys(), "ada")  # type: ignore[arg-type]
            record.keep("n1", torch.arange(4), "identity", b"terms")
        elif name == "members":  # as versions before 0.3 wrote it
            sets = {"first": torch.tensor([1]), "sets": torch.tensor([[1, 0]], dtype=torch.uint8)}
            cache.keep("members-a", "r1 1 32", sets)
        else:
            MemberRecord(cache, "r1", ("ada", "bob")).enter(1, ("ada",))

    return _written(f"cache-{name}", write)


_STORED = ("alignment", "members", "sums")
_SUFFIXES = {"record": ".json", "tensors": ".safetensors", "file": ".record"}


def _caches() -> list[Case]:
    found = []
    for name in _STORED:
        for path, content in _cache_files(name).items():
            what = next(what for what, suffix in _SUFFIXES.items() if path.endswith(suffix))
            found += [Case(f"{name}, {what}", content), Case(f"{name}, {what}, mended", content)]
    return found


def _read_caches() -> Callable[[str, bytes], object]:
    place, files = Place("caches"), {name: _cache_files(name) for name in _STORED}

    def read(variant: str, data: bytes) -> object:
        name, what, *mended = variant.split(", ")
        suffix = _SUFFIXES[what]
        changed = {path: data if path.endswith(suffix) else content for path, content in files[name].items()}
        folder = place.hold(changed)
        if mended:
            changed = _mended_cache(folder, changed)
            place.hold(changed)
        cache = RunCache(folder)
        if name != "alignment":
            record = MemberRecord(cache, "r1", ("ada", "bob"))
            record.bound(1), record.bound(7)
        else:
            aligned = AlignmentRecord(cache, _Keys(), "ada")  # type: ignore[arg-type]
            aligned.kept(b"terms")
            aligned.rows("n1")
            kept_rows(cache, "ada")
        place.check(changed)
        return name

    return read


def _mended_cache(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    if len(files) == 1:
        return {path: _mended_sums(data) for path, data in files.items()}
    (record,) = (path for path in files if path.endswith(".json"))
    (tensors,) = (path for path in files if path.endswith(".safetensors"))
    try:
        number = str(json.loads(files[record])["number"])
        checksum = run_cache.checksum_of(folder / tensors, number)
    except (ValueError, TypeError, KeyError, RecursionError):
        return files
    return {**files, record: json.dumps({"number": number, "sha256": checksum}).encode()}


def _mended_sums(data: bytes) -> bytes:
    try:
        tensors = safetensors.torch.load(data)
        number = str(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["number"])
        return safetensors.torch.save(tensors, {"number": number, "checksum": run_cache.sum_of(number, tensors)})
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, RecursionError):
        return data


# Kept alignments.

_ROSTER, _POLICY = b"roster", b"policy"


def _alignments() -> dict[str, bytes]:
    def write(folder: Path) -> None:
        found = kept.AlignmentStore(folder, _ROSTER, 30, lambda: 1000.0)
        found.keep(_Keys(), _POLICY, kept.KeptAlignment("identity", torch.arange(4)))  # type: ignore[arg-type]
        found.exponent()

    return _written("alignments", write)


def _alignment_cases() -> list[Case]:
    files = _alignments()
    found = [Case(Path(path).suffix or Path(path).name, content) for path, content in files.items()]
    found += [Case(".alignment, mended", case.data) for case in found if case.variant == ".alignment"]
    return [*found, Case("raised", bytes(32 + 3 * 64))]


def _read_alignments() -> Callable[[str, bytes], object]:
    place, files = Place("alignments"), _alignments()

    def read(variant: str, data: bytes) -> object:
        what, _, mended = variant.partition(", ")
        if what == "raised":
            path = place.hold({"raised": data}) / "raised"
            with unguarded():  # it opens a file without a name
                return RaisedElements(path, b"s" * 32).raised
        data = _mended_alignment(data) if mended else data
        changed = {path: data if path.endswith(what) else content for path, content in files.items()}
        found = kept.read_kept(
            next(iter([place.hold(changed) / path for path in changed if path.endswith(".alignment")]))
        )
        for path in changed:
            kept.made_at(place.hold(changed) / path)
        store = kept.AlignmentStore(place.hold(changed), _ROSTER, 1e9, lambda: 2000.0)
        if found is not None:
            record, tensors = found
            if tensors["rows"].dtype != torch.int64 or not isinstance(record["identity"], str):
                raise Broken("rows or an identity of another type")
        with unguarded():  # it removes what is too old
            return store.held(_Keys(), _POLICY)  # type: ignore[arg-type]

    return read


def _mended_alignment(data: bytes) -> bytes:
    try:
        size = int.from_bytes(data[:8], "little")
        text = json.loads(data[8 : 8 + size])["__metadata__"]["record"]
        tensors = safetensors.torch.load(data)
        digest = hashlib.sha256(text.encode() + kept.to_bytes(tensors["rows"])).digest()
        return safetensors.torch.save({**tensors, "checksum": to_tensor(digest)}, {"record": text})
    except Exception:  # noqa: BLE001
        return data


# Noisy labels, and encoders.

_LABELS, _PRIVATE = torch.tensor([0, 1, 2, 1]), LabelPrivacyConfig(deviation=0.3)


def _noisy() -> dict[str, bytes]:
    rows = torch.arange(4)
    return _written("noisy", lambda folder: NoisyLabelFile(folder, begun=False).get(_PRIVATE, _LABELS, rows, 3, 1))


def _noisy_cases() -> list[Case]:
    (content,) = _noisy().values()
    return [Case("", content), Case("mended", content)]


def _read_noisy() -> Callable[[str, bytes], object]:
    from colonnade.common.run.run_cache import tensor_checksum

    place, (name,) = Place("noisy-labels"), _noisy()

    def read(variant: str, data: bytes) -> object:
        if variant == "mended":
            try:
                size = int.from_bytes(data[:8], "little")
                about = json.loads(data[8 : 8 + size])["__metadata__"]
                tensors = safetensors.torch.load(data)
                about = {key: value for key, value in about.items() if key != "checksum"}
                data = safetensors.torch.save(tensors, {**about, "checksum": tensor_checksum(tensors["values"], about)})
            except Exception:  # noqa: BLE001
                pass
        found = NoisyLabelFile(place.hold({name: data}), begun=True).get(_PRIVATE, _LABELS, torch.arange(4), 3, 1)
        if found is None or found.values.dtype != torch.float64 or found.values.shape != (4, 3):
            raise Broken(f"labels {found}")
        place.check({name: data})
        return found

    return read


_COLUMNS = Features(
    torch.tensor([[1.0, 0.0], [2.0, 1.0], [4.0, 0.0]], dtype=torch.float64),
    ("age", "town"),
    0,
    None,
    (TypedColumn("age", None), TypedColumn("town", ("Ulm", "Bonn"))),
)


ENCODER = "encoder.json"


def _encoder() -> dict[str, bytes]:
    get = lambda folder: EncoderFile(folder, begun=False).get(EncodeConfig("standard"), _COLUMNS, torch.arange(3))  # noqa: E731
    written = _written("encoder", get)
    return {ENCODER: written[ENCODER]}  # the distribution of the rows lies beside it


def _read_encoder() -> Callable[[str, bytes], object]:
    place, (name,) = Place("encoders"), _encoder()

    def read(_variant: str, data: bytes) -> object:
        file = EncoderFile(place.hold({name: data}), begun=True)
        file.columns()
        found = file.get(EncodeConfig("standard"), _COLUMNS, torch.arange(3))
        if not isinstance(found, Encoder):
            raise Broken("no encoder")
        found.apply(_COLUMNS)
        place.check({name: data})
        return found

    return read


def _mutate(rng: Any, data: bytes, other: bytes) -> bytes:
    """As the file is: JSON or safetensors."""
    return (mutate_json if data[:1] == b"{" else mutate_safetensors)(rng, data, other)


_small = partial(Target, errors=(ColonnadeError,))

TARGETS = (
    _small("checkpoints", _read_checkpoints, _checkpoints, mutate=_mutate, count=100),
    _small("caches", _read_caches, _caches, mutate=_mutate, count=250),
    _small("alignments", _read_alignments, _alignment_cases, mutate=_mutate, count=200),
    _small("noisy-labels", _read_noisy, _noisy_cases, mutate=mutate_safetensors, count=250),
    _small("encoders", _read_encoder, lambda: [Case("", *_encoder().values())], mutate=mutate_json, count=500),
)
