"""Records in a party's folder that are lost, shortened, altered or older than what lies beside them: refused by name.

Bounds: no cell.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from colonnade.common.aggregation.summed_sets import MemberRecord
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.conversation.inprocess import run_virtual
from colonnade.common.errors import CheckpointError
from colonnade.common.privacy.accounting.ledger import Chain, mark, refuse_shorter
from colonnade.common.run.run_cache import RunCache
from colonnade.common.run.run_folder import RunFolder
from colonnade.launcher.configuration import GivenConfig
from colonnade.launcher.virtual import resume_virtually, run_virtually
from tests.support.in_memory import agreed, members
from tests.support.tables import table_tree, write_tables

BLINDED = {
    "protocol": {"name": "split_avg", "embedding": 4, "aggregate": "blinded"}, "checkpoint": {"rounds": 4},
    "privacy": {"mechanism": "gaussian", "noise_multiplier": 30.0, "delta": 1e-3, "clip": 1.0},
}  # fmt: skip


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def ledger_of(folder: Path, lines: int = 20) -> tuple[Path, str]:
    path = folder / "ledger.jsonl"
    for at in range(lines):
        Chain(path).append({"round": at, "kind": "Embedding", "noise_multiplier": 1.5, "reserved": 3})
    return path, mark(path)


def test_every_bit_of_a_ledger_counts(tmp_path: Path) -> None:
    path, before = ledger_of(tmp_path, 3)
    whole = path.read_bytes()
    for at in range(0, len(whole) * 8, 7):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        path.write_bytes(content)
        with pytest.raises(CheckpointError):
            refuse_shorter(path, before)


def test_a_ledger_that_went_on_or_was_torn_by_a_crash_is_accepted(tmp_path: Path) -> None:
    path, before = ledger_of(tmp_path)
    with path.open("a") as file:
        file.write('{"round": 21, "kind": "Emb')
    Chain(path).append({"round": 21})
    refuse_shorter(path, before)
    assert mark(tmp_path / "none") == "0 " + "0" * 64
    refuse_shorter(tmp_path / "none", mark(tmp_path / "none"))


def test_a_ledger_made_anew_of_the_same_length_is_refused(tmp_path: Path) -> None:
    path, before = ledger_of(tmp_path)
    size = path.stat().st_size
    path.unlink()
    while not path.exists() or path.stat().st_size < size:
        Chain(path).append({"round": 1, "kind": "Other"})
    with pytest.raises(CheckpointError, match="another file"):
        refuse_shorter(path, before)


def test_lines_of_a_version_without_hashes_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text('{"round": 1, "kind": "Embedding"}\n')
    before = mark(path)
    Chain(path).append({"round": 2})
    refuse_shorter(path, before)
    refuse_shorter(path, mark(path))


# The record of summed sets.


def record_of(folder: Path) -> MemberRecord:
    return MemberRecord(RunCache(folder), "run", ("a", "b", "c"))


def test_no_flipped_bit_empties_the_record_of_sums(tmp_path: Path) -> None:
    record_of(tmp_path / "once").enter(1, ("a", "b"))
    (path,) = (tmp_path / "once").iterdir()
    whole = path.read_bytes()
    for at in range(len(whole) * 8):
        content = bytearray(whole)
        content[at // 8] ^= 1 << at % 8
        path.write_bytes(content)
        with contextlib.suppress(CheckpointError):  # refused; else nothing that counts was changed
            assert record_of(tmp_path / "once").bound(1) == {"a", "b"}
    for cut in range(0, len(whole), 5):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match="cannot be computed again"):
            record_of(tmp_path / "once")


def of_version_0_2(folder: Path) -> None:
    """Writes the record as 0.2.0 did."""
    sets = {"first": torch.tensor([1]), "sets": torch.tensor([[1, 1, 0]], dtype=torch.uint8)}
    RunCache(folder).keep("members-b", "run 1 32", sets)


def test_a_record_of_an_older_version_is_read_and_a_damaged_one_refused(tmp_path: Path) -> None:
    of_version_0_2(tmp_path)
    record = record_of(tmp_path)
    assert record.bound(1) == {"a", "b"} and not record.enter(1, ("b", "c"))
    assert record.enter(33, ("b", "c")) and record_of(tmp_path).bound(33) == {"b", "c"}
    shutil.rmtree(tmp_path)
    for name, how in (("json", flip), ("json", delete), ("safetensors", flip), ("safetensors", delete)):
        of_version_0_2(tmp_path)
        how(tmp_path / f"members-b.{name}")
        with pytest.raises(CheckpointError, match="cannot be computed again"):
            record_of(tmp_path)


# A whole run.


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few rounds that can be resumed, and a copy of its first party's records from the middle."""
    folder = tmp_path_factory.mktemp("begun")
    write_tables(folder, parties=3)
    (folder / "f.yaml").write_text(yaml.safe_dump(table_tree(3, rounds=8, epochs=0, align="psi", **BLINDED)))
    run_virtually(GivenConfig.of(folder / "f.yaml"), folder / "run")
    older = folder / "older"
    shutil.copytree(RunFolder(folder / "run").party("party1").path, older)
    resume_virtually(folder / "run", ("federation.rounds=16",))
    return folder


@pytest.mark.parametrize(
    ("file", "how"), [("ledger.jsonl", "deleted"), ("ledger.jsonl", "older"), ("once/members.record", "deleted")]
)
def test_a_run_does_not_go_on_without_a_record(begun: Path, tmp_path: Path, file: str, how: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(begun / "run", run)
    path = RunFolder(run).party("party1").path / file
    if how == "older":
        assert path.read_bytes() != (begun / "older" / file).read_bytes()
        shutil.copy(begun / "older" / file, path)
    else:
        delete(path)
    with pytest.raises(CheckpointError, match=path.name):
        resume_virtually(run, ("federation.rounds=24",))


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (["parties/party1/pinned.json"], "pinned.json is missing"),
        (["parties/party1/pinned.json", "parties/party1/ledger.jsonl"], "pinned.json is missing"),
        (["run.json"], "run.json is missing, and there are checkpoints"),
    ],
)
def test_what_checkpoints_show_is_missed(begun: Path, tmp_path: Path, gone: list[str], named: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(begun / "run", run)
    for name in gone:
        (run / name).unlink()
    with pytest.raises(CheckpointError, match=named):
        resume_virtually(run, ("federation.rounds=24",))


def test_noisy_labels_older_than_the_newest_checkpoint_are_refused(tmp_path: Path) -> None:
    """They would be drawn a second time, which nothing counts."""
    folder = tmp_path / "members"

    async def ended(rounds: int) -> BaseException | None:
        privacy = "server.privacy.labels={mechanism: subset, epsilon: 2.0, prior: true}"
        with members(folder, agreed(privacy, f"federation.rounds={rounds}", "federation.checkpoint.rounds=2")) as there:
            tasks = {name: there.start(name) for name in (SERVER, *there.config.federation.names)}
            return await there.error(tasks[SERVER])

    labels = folder / SERVER / "noisy-labels.safetensors"
    assert run_virtual(ended(2)) is None
    older = labels.read_bytes()
    assert run_virtual(ended(4)) is None
    assert labels.read_bytes() != older
    labels.write_bytes(older)
    refused = run_virtual(ended(6))
    assert isinstance(refused, CheckpointError) and "older than the newest checkpoint" in str(refused)
