"""Every record of a member that its restart relies on: missing, cut, altered by one bit, or an older copy.

Each is refused with its file's name and a remedy, or has no effect on what it protects.

Bounds: no cell.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.client.member.pin import Pin
from colonnade.client.privacy.codes import DRAWS, PLACES, KeptCodes, RowPlaces
from colonnade.common.aggregation.summed_sets import MemberRecord, times_written
from colonnade.common.alignment.limits import NAME as FOREIGN
from colonnade.common.alignment.limits import NAME as TESTED
from colonnade.common.alignment.limits import DailyLimits, ForeignKeys
from colonnade.common.config.privacy import LabelPrivacyConfig, ResponseNoiseConfig
from colonnade.common.contracts.schedule import Schedule
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.parcels import Begin
from colonnade.common.data.columns.encode import EncodeConfig, Encoder
from colonnade.common.data.columns.features import Features
from colonnade.common.data.columns.kept_encoder import EncoderFile
from colonnade.common.errors import CheckpointError, ColonnadeError
from colonnade.common.privacy.accounting.ledger import Chain
from colonnade.common.privacy.subsets import SubsetSelection
from colonnade.common.run import json_text
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.json_text import sealed
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import PartyFolder, RunFolder
from colonnade.common.run.start_secret import SECRET
from colonnade.common.run.state import Snapshot
from colonnade.server.member.hub import SessionNumbers
from colonnade.server.member.saving import refuse_older, run_number
from colonnade.server.prediction.serving.tokens import Tokens, Unknown, add_caller
from colonnade.server.privacy import NoisyLabelFile, open_releases
from tests.adversaries.input.test_lost_records import delete, empty, flip, halve
from tests.support.federation import config

Step = Callable[[Path], object]

SCHEDULE = Schedule(config({"name": "split", "embedding": 6}).federation, 1797, 0)
HASHES = config({"name": "split", "embedding": 6}).federation.lasting_hashes()
NOISE = ResponseNoiseConfig(clip=0.1, head_clip=1, noise_multiplier=20)
SETS = SubsetSelection(10, 1, 1.0)
SCALE: Any = "standard"
FEATURES = Features(torch.arange(12, dtype=torch.float32).reshape(6, 2), ("age", "income"))
LABELS, CLASSES = torch.tensor([0, 1] * 10), 2


def pinned(folder: Path) -> Pin:
    return Pin("ada", folder, Checkpoints(folder / "checkpoints"))


def sealed_by_pin(work: Step) -> Step:
    """A step of a party that ends, so that its pin notes what it has."""

    def step(folder: Path) -> None:
        pin = pinned(folder)
        pin.admit(Begin(pin.content.session + 1, ("ada",), "r"))
        work(folder)
        pin.seal()

    return step


def released(folder: Path) -> None:
    there = PartyFolder(folder).codes
    drawn = [path for name in DRAWS if (path := there / name).exists()]
    at = 3 if drawn else 0
    for name in DRAWS:
        kept = KeptCodes(there / name, SETS, 6, begun=bool(drawn), bits=torch_bytes)
        kept.release(torch.arange(at, at + 3), torch.zeros(3, dtype=torch.int64))


def torch_bytes(size: int) -> bytes:
    return bytes(torch.randint(256, (size,), dtype=torch.uint8).tolist())


def placed(folder: Path) -> None:
    there = PartyFolder(folder).codes / PLACES
    RowPlaces(there, ["a", "b", "c" if there.exists() else "b'"], 2, predicts=there.exists()).of(torch.tensor([0]))


def spent(folder: Path) -> None:
    releases = open_releases(NOISE, SCHEDULE, 4, 20, folder, begun=RunFolder(folder).answers.exists())
    assert releases is not None
    for _ in range(40):
        releases.spend(torch.arange(20))


def counted(cache: str) -> Step:
    def count(folder: Path) -> None:
        there = ForeignKeys("ada", 10, path=folder / cache / FOREIGN)
        there.count("bob", 3, f"list {there.counted}")

    return count


def limits(folder: Path) -> DailyLimits:
    return DailyLimits(folder / TESTED, {"bob": "ab" * 32}, now=lambda: 490001 * 3600.0)


def summed(folder: Path) -> None:
    record = MemberRecord(RunCache(folder / "once"), "r", ("a", "b", "c"))
    record.enter(record._until + 1, ("a", "b"))


def committed(folder: Path) -> None:
    summed(folder)
    (folder / "committed.json").write_bytes(sealed({"round": 1, "sums": times_written(RunCache(folder / "once"))}))


def sums_of_server(folder: Path) -> None:
    record = folder / "once" / "members.record"
    refuse_older(folder / "committed.json", "sums", times_written(RunCache(folder / "once")), record)


def noisy(folder: Path, *, begun: bool) -> object:
    private = LabelPrivacyConfig(epsilon=1.0)
    return NoisyLabelFile(folder, begun=begun).get(private, LABELS, torch.arange(20), CLASSES, 7)


def sent(folder: Path) -> None:
    with_line = Chain(PartyFolder(folder).ledger)
    with_line.append({"kind": "Embedding", "reserved": 3, "noise_multiplier": 1.0}, durably=True)


def numbered(folder: Path) -> tuple[str, str | None]:
    run = RunFolder(folder)
    return run_number(run, Checkpoints(run.checkpoints)), run.start_record()


def begun_by_server(folder: Path) -> None:
    RunFolder(folder).record("r", "federation", SECRET)
    owner = Owner(SERVER, "r", HASHES)
    Checkpoints(folder / "checkpoints").save(1, Snapshot(), owner)


def admitted(folder: Path) -> Pin:
    pin = pinned(folder)
    if not pin.content.run:
        pin.admit(Begin(9, ("ada",), "r"))
    return pin


RECORDS: dict[str, tuple[Step, Step]] = {
    "ledger.jsonl": (sealed_by_pin(sent), pinned),
    "pinned.json": (sealed_by_pin(sent), admitted),
    "start.secret": (sealed_by_pin(sent), pinned),
    "once/members.record": (sealed_by_pin(summed), pinned),
    f"once/{FOREIGN}": (sealed_by_pin(counted("once")), pinned),
    f"once-predictions/{FOREIGN}": (sealed_by_pin(counted("once-predictions")), pinned),
    f"codes/{DRAWS[0]}": (sealed_by_pin(released), pinned),
    f"codes/{DRAWS[1]}": (sealed_by_pin(released), pinned),
    f"codes/{PLACES}": (sealed_by_pin(placed), pinned),
    "encoder.json": (
        lambda folder: EncoderFile(folder, begun=False).get(EncodeConfig(SCALE), FEATURES, torch.arange(4)),
        lambda folder: EncoderFile(folder, begun=True).get(EncodeConfig(SCALE), FEATURES, torch.arange(4)),
    ),
    TESTED: (lambda folder: limits(folder).count({"bob": 7}), lambda folder: limits(folder).tested("bob")),
    "answers.json": (spent, lambda folder: open_releases(NOISE, SCHEDULE, 4, 20, folder, begun=True)),
    "noisy-labels.safetensors": (
        lambda folder: noisy(folder, begun=RunFolder(folder).noisy_labels.exists()),
        lambda folder: noisy(folder, begun=True),
    ),
    "run.json": (begun_by_server, numbered),
    "at the server: once/members.record": (committed, sums_of_server),
}  # fmt: skip
UNCHANGING = ("run.json", "start.secret", "encoder.json", "noisy-labels.safetensors")


def lie(folder: Path, record: str, how: str) -> tuple[Path, bool, str]:
    """A folder of two steps with one of its records harmed, whether it differs from what it was, and what it said."""
    step, _ = RECORDS[record]
    path = folder / record.removeprefix("at the server: ")
    step(folder)
    older = path.read_bytes()
    if record != "pinned.json" or how != "older":
        step(folder)
    whole, said = path.read_bytes(), what(RECORDS[record][1](folder))
    if how == "older":
        path.write_bytes(older)
    else:
        {"missing": delete, "emptied": empty, "cut": halve, "one bit": flip}[how](path)
    return path, not path.exists() or path.read_bytes() != whole, said


@pytest.mark.parametrize("how", ["missing", "emptied", "cut", "one bit", "older"])
@pytest.mark.parametrize("record", RECORDS)
def test_a_harmed_record_is_refused_by_name(tmp_path: Path, record: str, how: str) -> None:
    path, differs, whole = lie(tmp_path, record, how)
    if not differs:
        assert record in UNCHANGING or record == "pinned.json"
        return
    with pytest.raises(CheckpointError) as refused:
        found = RECORDS[record][1](tmp_path)
        if how == "one bit" and what(found) == whole:
            pytest.skip("this bit says nothing: the next test tries others")
    said = f"{refused.value} {refused.value.hint}"
    assert path.name in said or "private answers" in said or "label privacy" in said or "records of a run" in said
    assert refused.value.hint


def what(found: object) -> str:
    """What a reader has found."""
    if isinstance(found, Pin):
        return str(found.content)
    if isinstance(found, Encoder):
        return f"{found.scaler.shift} {found.scaler.spread} {found.config}"
    return str({name: str(value) for name, value in vars(found).items()} if hasattr(found, "__dict__") else found)


@pytest.mark.parametrize("record", [name for name in RECORDS if name not in ("ledger.jsonl", "start.secret")])
def test_no_bit_of_it_changes_what_is_read(tmp_path: Path, record: str) -> None:
    RECORDS[record][0](tmp_path)
    path = tmp_path / record.removeprefix("at the server: ")
    whole, before = path.read_bytes(), what(RECORDS[record][1](tmp_path))
    for at in range(0, len(whole) * 8, max(1, len(whole) * 8 // 60) | 1):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        path.write_bytes(content)
        with contextlib.suppress(CheckpointError):  # refused; else nothing that counts was changed
            assert what(RECORDS[record][1](tmp_path)) == before


def test_an_older_folder_of_codes_is_refused(tmp_path: Path) -> None:
    step = sealed_by_pin(released)
    step(tmp_path)
    shutil.copytree(tmp_path / "codes", tmp_path / "copy")
    step(tmp_path)
    shutil.rmtree(tmp_path / "codes")
    with pytest.raises(CheckpointError, match=r"safetensors is missing"):
        pinned(tmp_path)
    shutil.copytree(tmp_path / "copy", tmp_path / "codes")
    with pytest.raises(CheckpointError, match=r"safetensors is older"):
        pinned(tmp_path)


def test_a_ledger_that_0_2_0_left_and_that_is_missing_is_refused(tmp_path: Path) -> None:
    before = {"run": "r", "session": 3, "committed": False, "backed_off": 0, "entered": 1001, "format": 1}
    (tmp_path / "pinned.json").write_text(json.dumps(before))
    with pytest.raises(CheckpointError, match=r"ledger\.jsonl is missing"):
        pinned(tmp_path)
    Chain(tmp_path / "ledger.jsonl").append({"round": 1})
    pinned(tmp_path)


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_a_crash_between_a_record_and_its_witness_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash: int
) -> None:
    limits(tmp_path).count({"bob": 7})
    write, calls = json_text.write_durably, list[Path]()

    def failing(path: Path, content: bytes, mode: int = 0o666) -> None:
        calls.append(path)
        if len(calls) == crash:
            raise OSError(28, "No space left on device")
        write(path, content, mode)

    monkeypatch.setattr(json_text, "write_durably", failing)
    with pytest.raises(Exception, match="cannot be written"):
        limits(tmp_path).count({"bob": 5})
    monkeypatch.undo()
    assert limits(tmp_path).tested("bob")[1] in (7, 12)
    limits(tmp_path).count({"bob": 5})


def test_session_numbers_grow_without_their_file(tmp_path: Path) -> None:
    first = SessionNumbers(tmp_path, lambda: 1000.0).after(0)
    for harm in (delete, empty, lambda path: path.write_bytes(b"x")):
        harm(RunFolder(tmp_path).session)
        later = SessionNumbers(tmp_path, lambda: 2000.0).after(0)
        assert later > first


def test_no_harmed_list_of_callers_admits_another(tmp_path: Path) -> None:
    path = RunFolder(tmp_path).tokens
    tokens = [add_caller(path, name) for name in ("ada", "bob")]
    whole, hashes = path.read_bytes(), {hashlib.sha256(token.encode()).digest() for token in tokens}
    for at in range(0, len(whole) * 8, 5):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        for harmed in (bytes(content), whole[: at // 8]):
            path.write_bytes(harmed)
            with contextlib.suppress(ColonnadeError):
                known = Tokens.read(path, 1.0)._hashes
                assert len(known) <= 2 and len(set(known.values()) - hashes) <= 1
    path.unlink()
    anew = Tokens.read(path, 1.0)
    for token in tokens:
        with pytest.raises(Unknown):
            anew.admit(f"Bearer {token}", 1)
