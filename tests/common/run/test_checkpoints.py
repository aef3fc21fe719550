"""Checkpoint files: complete, truncated, altered, another member's, and failing disks; durable files and lines."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.errors import CheckpointError, EnvironmentFault
from colonnade.common.run.checkpoints import Checkpoints, Owner
from colonnade.common.run.files import rehearsal, write_durably
from colonnade.common.run.state import Snapshot
from colonnade.simulation.federation import RunFiles
from tests.support.federation import config, federate

OURS = Owner("party1", "run-a", {"seed": "1", "batch": "2"}, {"model.width": "4", "older": "1"})


def snapshot(seed: int = 0) -> Snapshot:
    tensors = {"model.weight": torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))}
    return Snapshot(tensors, {"model": {"items": [["weight", {"tensor": "model.weight"}]]}, "round": 3})


def test_a_loaded_checkpoint_equals_the_saved_one(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path / "new")
    store.prepare()
    store.save(7, snapshot(), OURS)
    found = store.load(7, OURS)
    assert torch.equal(found.tensors["model.weight"], snapshot().tensors["model.weight"])
    assert found.values == snapshot().values
    assert (store.usable(OURS), store.run()) == ([7], "run-a")


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """A folder with the checkpoints of rounds 10 and 20."""
    store = Checkpoints(tmp_path)
    for round in (10, 20):
        store.save(round, snapshot(round), OURS)
    return tmp_path


@given(data=st.data())
def test_any_change_to_any_byte_is_noticed(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("checkpoints")
    Checkpoints(folder).save(10, snapshot(10), OURS)
    Checkpoints(folder).save(20, snapshot(20), OURS)
    victim = folder / data.draw(st.sampled_from(["round-00000020.json", "round-00000020.safetensors"]))
    content = victim.read_bytes()
    if data.draw(st.booleans()):
        victim.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    else:
        place, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
        victim.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    said: list[str] = []
    assert Checkpoints(folder, said.append).usable(OURS) == [10]
    assert len(said) == 1
    assert "round-00000020.json is torn or was altered" in said[0]


def test_tensors_without_a_record_and_files_of_others_are_nothing(two: Path) -> None:
    (two / "round-00000030.safetensors").write_bytes(b"x")
    (two / "round-x.json").write_text("{}")
    (two / "notes.json").write_text("{}")
    assert Checkpoints(two).usable() == [20, 10]


def test_a_record_that_was_copied_to_another_round_is_refused(two: Path) -> None:
    (two / "round-00000040.json").write_bytes((two / "round-00000020.json").read_bytes())
    (two / "round-00000040.safetensors").write_bytes((two / "round-00000020.safetensors").read_bytes())
    assert Checkpoints(two).usable() == [20, 10]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        (Owner("party2", "run-a", OURS.config), "is of member 'party1', not 'party2'"),
        (Owner("party1", "run-b", OURS.config), "is of run 'run-a', not 'run-b'"),
        (Owner("party1", "run-a", {"seed": "9", "batch": "2"}), "it differs in federation.seed"),
        (Owner("party1", "run-a", {"seed": "1"}), "it differs in federation.batch"),
        (Owner("party1", "run-a", OURS.config, {"model.width": "5", "newer": "0"}), "it differs in model.width"),
    ],
)
def test_anothers_checkpoint_is_refused_with_what_differs(two: Path, owner: Owner, said: str) -> None:
    for ask in (lambda: Checkpoints(two).usable(owner), lambda: Checkpoints(two).load(20, owner)):
        with pytest.raises(CheckpointError, match=said) as refused:
            ask()
        assert refused.value.hint


def test_another_format_is_refused(two: Path) -> None:
    path = two / "round-00000020.json"
    record = json.loads(path.read_text()) | {"format": 2}
    del record["checksum"]
    from colonnade.common.run.checkpoints import checksum_of  # the only way to forge one

    path.write_text(json.dumps({**record, "checksum": checksum_of(record)}))
    with pytest.raises(CheckpointError, match="has format 2"):
        Checkpoints(two).usable(OURS)


def test_a_round_that_was_not_saved_is_refused(two: Path) -> None:
    with pytest.raises(CheckpointError, match="torn or was altered"):
        Checkpoints(two).load(15, OURS)


def test_pruning_keeps_the_given_rounds(two: Path) -> None:
    store = Checkpoints(two)
    store.save(30, snapshot(), OURS)
    store.prune({20, 30})
    assert store.usable(OURS) == [30, 20]
    assert len(list(two.iterdir())) == 4


def test_partial_files_of_an_earlier_start_are_removed(two: Path) -> None:
    (two / "round-00000030.json.partial").write_text("{")
    Checkpoints(two).prepare()
    assert not list(two.glob("*.partial"))


def test_an_unwritable_folder_is_reported_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file")
    with pytest.raises(EnvironmentFault, match="checkpoints cannot be written to"):
        Checkpoints(tmp_path / "checkpoints").prepare()


def test_a_full_disk_leaves_the_previous_checkpoint_and_is_reported(two: Path) -> None:
    child = os.fork()
    if child == 0:  # a limit on the size of files cannot be lifted again
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        try:
            Checkpoints(two).save(30, snapshot(), OURS)
        except EnvironmentFault as refused:
            ok = "the checkpoint of round 30 cannot be written" in str(refused) and refused.hint
            os._exit(0 if ok else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Checkpoints(two).usable(OURS) == [20, 10]
    assert len(list(two.iterdir())) == 4


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    write_durably(tmp_path / "a", b"old")
    write_durably(tmp_path / "a", b"new and longer")
    assert (tmp_path / "a").read_bytes() == b"new and longer"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_durably(tmp_path / "a", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_durably(tmp_path / "a", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old"}


def test_a_file_for_its_owner_alone_is_so_from_the_beginning(tmp_path: Path) -> None:
    write_durably(tmp_path / "a", b"secret", 0o600)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_simulation_does_not_wait_for_the_disk_and_all_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    cfg = config({"name": "split", "embedding": 4}, "federation.epochs=1")
    federate(cfg, files=RunFiles(tmp_path / "run", cfg, tmp_path), save=True)
    assert {path.suffix for path in (tmp_path / "run").rglob("*")} >= {".yaml", ".json", ".safetensors"} and not waits
    write_durably(tmp_path / "a", b"new")
    assert len(waits) == 2  # the content, and the name


def test_threads_of_a_rehearsal_belong_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = list[int]()
    monkeypatch.setattr(os, "fsync", waits.append)
    with rehearsal():
        asyncio.run(asyncio.to_thread(write_durably, tmp_path / "a", b"new"))
    assert not waits
