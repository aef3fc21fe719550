"""Where a member keeps its alignments, and how they are forgotten."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
import torch

from colonnade.common.alignment.exponent import RaisedElements
from colonnade.common.alignment.keeping import Keeping, Place
from colonnade.common.alignment.keys import RowKeys
from colonnade.common.alignment.place import NAME, TEMPORARY, VARIABLE, lasting, make_private, place_of
from colonnade.common.alignment.store import AlignmentStore, KeptAlignment, forget
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.crypto.group import Secret, hash_to_curve
from colonnade.common.errors import EnvironmentFault
from tests.support.alignment import federation
from tests.support.household import colonnade

OWN = AlignmentsConfig()


def test_the_place_is_beside_the_runs(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"
    (out / "parties" / "bank").mkdir(parents=True)
    assert place_of(OWN, tmp_path, out, "server") == tmp_path / "runs" / NAME / "server"
    bank = out / "parties" / "bank"
    assert place_of(OWN, tmp_path, bank, "bank") == out / "parties" / NAME / "bank"  # a party on its own
    (out / "launch.json").write_text("{}")
    assert place_of(OWN, tmp_path, bank, "bank") == tmp_path / "runs" / NAME / "bank"  # one that `up` started


def test_the_environment_names_it_and_the_configuration_goes_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "volume"))
    assert place_of(OWN, tmp_path, tmp_path / "run", "bank") == tmp_path / "volume" / "bank"
    named = AlignmentsConfig(folder=Path("kept"))
    assert place_of(named, tmp_path / "base", tmp_path / "run", "bank") == tmp_path / "base" / "kept" / "bank"


@pytest.mark.parametrize("how", ["link", "everybody's"])
def test_a_place_that_others_may_have_made_is_not_used(tmp_path: Path, how: str) -> None:
    """As in /tmp, where anybody can make a folder of this name before us."""
    run, beside = tmp_path / "run", tmp_path / NAME
    run.mkdir()
    if how == "link":
        (tmp_path / "theirs").mkdir()
        beside.symlink_to(tmp_path / "theirs")
    else:
        beside.mkdir()
        beside.chmod(0o777)
    assert place_of(OWN, tmp_path, run, "bank") == run / NAME / "bank"


def test_a_folder_is_made_private_and_a_link_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "kept" / "bank"
    folder.mkdir(parents=True, mode=0o755)
    make_private(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tmp_path / "kept" / "shop").symlink_to(folder)
    with pytest.raises(EnvironmentFault, match="shop is a link, or belongs to another user"):
        make_private(tmp_path / "kept" / "shop")


def test_keys_for_one_start_identify_nobody(tmp_path: Path) -> None:
    own = tmp_path / "members" / "bank"
    own.mkdir(parents=True)
    assert lasting(own) and not lasting(None)
    (own.parent / TEMPORARY).touch()
    assert not lasting(own)


def fill(folder: Path) -> None:
    for member in ("server", "bank"):
        store = AlignmentStore(folder / member, os.urandom(32), 30)
        store.keep(RowKeys((b"a",)), b"", KeptAlignment("f" * 64, torch.tensor([0])))
        store.exponent()


def test_forgetting_removes_what_is_kept_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "summary.json").write_text("{}")
    assert forget(tmp_path) == 4
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_command_forgets_beside_the_runs(tmp_path: Path) -> None:
    fill(tmp_path / NAME)
    code, said = colonnade("forget", tmp_path)
    assert code == 0 and "forgot 4 alignments and exponents of bank, server" in said.replace("\n", " ")
    assert not (tmp_path / NAME).exists()
    code, said = colonnade("forget", tmp_path)
    assert code == 2 and "holds no kept alignments" in said


def test_the_exponent_of_a_roster_serves_the_whole_roster_alone(tmp_path: Path) -> None:
    """Predictions without an absent party raise keys to secrets of their own."""
    agreed, place = federation(3), Place(OWN, tmp_path, tmp_path / "run", "party1")
    keeping = Keeping.of(agreed, place, pinned=False)
    key = [b"a key"]
    raised = {keeping.among(agreed.names)(os.urandom(32)).keys(key, b"tag") for _ in range(2)}
    assert len(raised) == 1
    fewer = {keeping.among(agreed.names[:2])(os.urandom(32)).keys(key, b"tag") for _ in range(2)}
    assert len(fewer) == 2 and not fewer & raised


def test_an_exponent_is_the_same_until_it_is_too_old(tmp_path: Path) -> None:
    now = [1e9]
    store = AlignmentStore(tmp_path, b"r" * 32, 10, lambda: now[0])
    first = store.exponent()
    assert len(first) == 32 and store.exponent() == first
    assert AlignmentStore(tmp_path, b"s" * 32, 10, lambda: now[0]).exponent() != first  # of other members
    now[0] += 9 * 86400
    assert AlignmentStore(tmp_path, b"r" * 32, 10, lambda: now[0]).exponent() == first
    now[0] += 2 * 86400
    assert AlignmentStore(tmp_path, b"r" * 32, 10, lambda: now[0]).exponent() != first


def test_elements_are_kept_with_the_exponent_that_raised_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs begin at once, and the other one draws the exponent that stays: ours must not be kept as its own."""
    place, made = Place(OWN, tmp_path, tmp_path / "run", "bank"), AlignmentStore.raised
    monkeypatch.setenv(VARIABLE, str(tmp_path / "kept"))
    keeping = Keeping.of(federation(2), place, pinned=False)

    def late(store: AlignmentStore, *exponent: bytes) -> RaisedElements:
        for path in tmp_path.glob("kept/bank/*/exponent.json"):
            path.unlink()
        store.exponent()
        return made(store, *exponent)

    with monkeypatch.context() as patched:
        patched.setattr(AlignmentStore, "raised", late)
        keeping.exponent(bytes(32)).keys([b"a key"], b"tag")
    keeping.close(complete=True)
    again = Keeping.of(federation(2), place, pinned=False)
    exponent = again.exponent(bytes(32))
    found = exponent.keys([b"a key"], b"tag")
    scalar = next(iter(tmp_path.glob("kept/bank/*/exponent.json"))).read_text()
    assert found == Secret(bytes.fromhex(json.loads(scalar)["exponent"])).raise_all(hash_to_curve([b"a key"], b"tag"))


def test_forget_leaves_files_that_are_not_its_own(tmp_path: Path) -> None:
    """`alignments.folder` may name one that has other uses, such as that of the parties' runs."""
    store, keys = AlignmentStore(tmp_path / "bank", bytes(32), 30), RowKeys((b"a",), tmp_path)
    store.keep(keys, b"", KeptAlignment("x", torch.arange(1)))
    store.exponent()
    (tmp_path / "bank" / "checkpoints").mkdir()
    left = [tmp_path / "bank" / "ledger.jsonl", tmp_path / "bank" / "checkpoints" / "round-1.json"]
    for path in left:
        path.write_text("{}")
    assert forget(tmp_path) == 2
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(left)
