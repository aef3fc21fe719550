"""A member that tests identifiers by alignment after alignment, each in a new run whose folder has no history.

Bounds: alignment (server, party); kept alignments (both).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from colonnade.common.alignment.limits import NAME
from colonnade.common.alignment.messages import Points, Sizes
from colonnade.common.config.alignment import AlignmentsConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.errors import ConfigError
from tests.support.alignment import federation
from tests.support.kept import Found, Members

TABLES = {SERVER: ["ada", "bob", "cyd"], "party1": ["cyd", "bob", "ada"], "party2": ["bob", "ada", "eve", "fay"]}


def members(folder: Path) -> Members:
    pins = make_federation(folder / "pki", ["party1", "party2"])
    agreed = federation(2).model_copy(update={"server": pins.pop("server"), "parties": pins})
    there = Members(folder, agreed, {name: list(own) for name, own in TABLES.items()})
    there.identities = {name: load_identity(folder / "pki" / name) for name in pins}
    return there


def guess(there: Members, member: str, number: int) -> Found:
    """The member aligns a list of its choice, in a new run."""
    there.tables[member] = ["bob", f"guess {number}", "ada"]
    return there.run()


@pytest.mark.parametrize(
    ("liar", "rule"),
    [
        (SERVER, {"per_day": 2}),
        (SERVER, {"rows_per_day": 20}),
        ("party1", {"per_day": 2}),
        ("party1", {"rows_per_day": 8}),
    ],
)
def test_new_runs_do_not_begin_at_zero(tmp_path: Path, liar: str, rule: dict[str, int]) -> None:
    """Not even after the victim has removed its kept alignments."""
    there = members(tmp_path)
    victim = SERVER if liar == "party1" else "party1"
    there.limits[victim] = AlignmentsConfig(**rule)
    for number in range(2):
        assert there.persons(guess(there, liar, number))
        for path in (tmp_path / "kept" / victim).iterdir():
            if path.name != NAME:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    before = (tmp_path / "kept" / victim / NAME).read_bytes()
    refused = guess(there, liar, 2)
    error = refused.rows[victim]
    who = f"{there.agreed.server[:16]}… has announced" if liar == SERVER else f"{liar} has tested"
    assert isinstance(error, ConfigError) and who in str(error) and next(iter(rule)) in str(error)
    assert "wait until" in error.hint
    assert not any(isinstance(m, Points) for sender, _to, m in refused.messages if sender == victim)
    assert (tmp_path / "kept" / victim / NAME).read_bytes() == before
    there.now += 25 * 3600
    assert there.persons(guess(there, liar, 3))


def test_the_count_is_on_the_disk_before_the_first_exponent(tmp_path: Path) -> None:
    """So that a partner which aborts as soon as it has learned something has been counted."""
    there, seen = members(tmp_path), dict[str, bool]()

    def stop(sender: str, _to: str, item: object) -> object:
        if isinstance(item, Points):
            seen.setdefault(sender, (tmp_path / "kept" / sender / NAME).exists())
        return item

    there.run(stop)  # type: ignore[arg-type]
    assert seen == dict.fromkeys(TABLES, True)
    assert there.daily("party2").tested(SERVER) == (1, 6) and there.daily(SERVER).tested("party2") == (1, 4)


def test_a_kept_alignment_tests_nothing_and_is_not_counted(tmp_path: Path) -> None:
    there = members(tmp_path)
    there.limits["party1"] = AlignmentsConfig(per_day=1)
    assert [set(there.run().reused.values()) for _ in range(3)] == [{0}, {2}, {2}]
    assert there.daily("party1").tested(SERVER) == (1, 7)


def test_a_server_that_lies_about_sizes_uses_up_its_own_limit_alone(tmp_path: Path) -> None:
    """Whichever member's it says they are; the same members align in the federation of another server."""
    there = members(tmp_path / "lying")
    there.limits["party1"] = AlignmentsConfig(rows_per_day=100)

    def lying(*sizes: int) -> object:
        lie = torch.tensor(sizes)
        change = lambda _from, _to, item: Sizes(item.round, lie) if isinstance(item, Sizes) else item  # noqa: E731
        return there.run(change).rows["party1"]

    assert not isinstance(lying(3, 3, 90), ConfigError)
    for sizes in ((3, 3, 5), (8, 3, 1)):  # it cannot spread its guesses over members either
        refused = lying(*sizes)
        assert isinstance(refused, ConfigError) and there.agreed.server[:16] in str(refused)
        assert "party2" not in str(refused)
    there.agreed = there.agreed.model_copy(update={"server": members(tmp_path / "honest").agreed.server})
    assert there.persons(there.run())


def test_predictions_are_counted_too(tmp_path: Path) -> None:
    there = members(tmp_path)
    there.limits["party1"] = AlignmentsConfig(per_day=2)
    there.run()
    there.predict(["gus"])
    refused = there.predict(["hal"])
    assert isinstance(refused.rows["party1"], ConfigError)
