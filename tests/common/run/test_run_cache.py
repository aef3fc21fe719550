"""The run cache: an entry survives a restart completely or not at all."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import SafetensorError
from torch import Tensor

from colonnade.common.errors import EnvironmentFault
from colonnade.common.run import run_cache as once_module
from colonnade.common.run.run_cache import RunCache

FIRST = {"shares": torch.arange(12, dtype=torch.int32).view(3, 4)}
SECOND = {"shares": torch.full((2, 4), 7, dtype=torch.int32), "more": torch.rand(3)}


def same(one: object, other: dict[str, Tensor]) -> bool:
    assert isinstance(one, dict)
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in other)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache with FIRST as `data` under the number `a1`."""
    RunCache(tmp_path / "once").keep("data", "a1", FIRST)
    return tmp_path / "once"


@pytest.fixture(params=["in memory", "in a folder"])
def run_cache(request: pytest.FixtureRequest, tmp_path: Path) -> RunCache:
    return RunCache(tmp_path / "once" if request.param == "in a folder" else None)


def test_nothing_is_there_at_first(run_cache: RunCache) -> None:
    assert run_cache.number("data") == ""
    with pytest.raises(KeyError):
        run_cache.get("data")


def test_an_entry_is_found_by_name_until_it_is_replaced(run_cache: RunCache) -> None:
    run_cache.keep("data", "a1", FIRST)
    run_cache.keep("other", "b2", SECOND)
    assert (run_cache.number("data"), run_cache.number("other")) == ("a1", "b2")
    assert same(run_cache.get("data"), FIRST) and same(run_cache.get("other"), SECOND)
    run_cache.keep("data", "c3", SECOND)
    assert run_cache.number("data") == "c3" and same(run_cache.get("data"), SECOND)


def test_a_new_object_on_the_same_folder_has_it(folder: Path) -> None:
    again = RunCache(folder)
    assert again.number("data") == "a1" and same(again.get("data"), FIRST)
    assert same(RunCache(folder).get("data"), FIRST)  # also if its number is not requested first
    assert sorted(path.name for path in folder.iterdir()) == ["data.json", "data.safetensors"]


def test_a_folder_is_made_with_the_first_thing_that_is_kept(tmp_path: Path) -> None:
    run_cache = RunCache(tmp_path / "run" / "once")
    assert run_cache.number("data") == "" and not (tmp_path / "run").exists()


def test_a_loaded_entry_is_unchanged_after_its_replacement(folder: Path) -> None:
    """The tensors are read from the file's pages: the new file must not be written over the old one."""
    run_cache = RunCache(folder)
    held = run_cache.get("data")
    run_cache.keep("data", "c3", {"shares": torch.zeros(3, 4, dtype=torch.int32)})
    assert same(held, FIRST)


@given(data=st.data())
def test_any_change_to_any_byte_is_noticed_and_it_can_be_made_again(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("once")
    RunCache(folder).keep("data", "a1", FIRST)
    victim = folder / data.draw(st.sampled_from(["data.json", "data.safetensors"]))
    content = victim.read_bytes()
    if data.draw(st.booleans(), label="cut short"):
        victim.write_bytes(content[: data.draw(st.integers(0, len(content) - 1))])
    else:
        place, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
        victim.write_bytes(content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :])
    run_cache = RunCache(folder)
    assert run_cache.number("data") == ""
    with pytest.raises(KeyError):
        run_cache.get("data")
    run_cache.keep("data", "c3", SECOND)
    assert RunCache(folder).number("data") == "c3" and same(RunCache(folder).get("data"), SECOND)


@pytest.mark.parametrize("record", ["", "[]", "7", "{}", '{"number": "a1"}', '{"number": "a1", "sha256": null}'])
def test_a_record_of_another_kind_is_ignored(folder: Path, record: str) -> None:
    (folder / "data.json").write_text(record)
    assert RunCache(folder).number("data") == ""


@pytest.mark.parametrize("lost", ["data.json", "data.safetensors"])
def test_one_of_the_two_files_alone_is_nothing(folder: Path, lost: str) -> None:
    (folder / lost).unlink()
    assert RunCache(folder).number("data") == ""


def test_a_crash_before_the_record_leaves_nothing_of_either(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old record is removed first: else it would describe tensors that are not its own."""

    def crash(path: Path, content: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(once_module, "write_durably", crash)
    with pytest.raises(KeyboardInterrupt):
        RunCache(folder).keep("data", "c3", SECOND)
    assert not (folder / "data.json").exists() and RunCache(folder).number("data") == ""


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        ("safetensors.torch.save_file", SafetensorError("I/O error: No space left on device (os error 28)")),
        ("os.fsync", OSError(28, "No space left on device")),
        ("colonnade.common.run.run_cache.write_durably", OSError(28, "No space left on device")),
    ],
    ids=["tensors", "forced to the disk", "record"],
)
def test_a_full_disk_is_reported_and_leaves_no_entry(
    folder: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: Exception
) -> None:
    def full(*_args: object) -> None:
        raise error

    run_cache = RunCache(folder)
    assert run_cache.number("data") == "a1"
    monkeypatch.setattr(failing, full)
    with pytest.raises(EnvironmentFault, match=r"^data cannot be kept in .*No space left on device") as refused:
        run_cache.keep("data", "c3", SECOND)
    assert "make room" in refused.value.hint
    assert run_cache.number("data") == RunCache(folder).number("data") == ""
    monkeypatch.undo()
    run_cache.keep("data", "c3", SECOND)
    assert run_cache.number("data") == RunCache(folder).number("data") == "c3"


def test_a_disk_that_takes_no_more_bytes_is_such_a_disk(folder: Path) -> None:
    """No mock: a child that may write no more than 1000 bytes."""
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            RunCache(folder).keep("data", "c3", {"shares": torch.zeros(10_000)})
        except EnvironmentFault as refused:
            os._exit(0 if "File too large" in str(refused) else 2)
        os._exit(3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert RunCache(folder).number("data") == ""


def test_a_number_that_was_altered_is_noticed(folder: Path) -> None:
    """The server compares numbers: another one would present old tensors as new ones."""
    record = json.loads((folder / "data.json").read_text())
    assert record["number"] == "a1"
    (folder / "data.json").write_text(json.dumps({**record, "number": "a2"}))
    assert RunCache(folder).number("data") == ""
