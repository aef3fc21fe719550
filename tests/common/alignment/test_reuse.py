"""An alignment is kept, and used by the next run: with the same tables, members, fingerprints and rules alone."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.common.alignment.messages import Held, Kept, Offers, Positions, Reused, Stated, Statements
from colonnade.common.config.policy import PolicyConfig
from colonnade.common.conversation.conversation import SERVER
from colonnade.common.crypto.group import Secret
from colonnade.common.crypto.pki.authority import make_federation
from colonnade.common.crypto.pki.identity import load_identity
from colonnade.common.errors import ConfigError, ContractError
from colonnade.common.messaging.outgoing import MaskedTensor
from colonnade.common.messaging.raw import lay_out, take_apart, to_tensor
from colonnade.common.run import files
from tests.support.alignment import federation
from tests.support.kept import Found, Members

TABLES = {
    SERVER: ["ada", "bob", "cyd", "dan", "eve", "fay"],
    "party1": ["fay", "bob", "gus", "ada", "hal", "dan", "ivy"],
    "party2": ["dan", "jim", "bob", "ada", "eve"],
}
COMMON = {"ada", "bob", "dan"}


def members(folder: Path, **more: Any) -> Members:
    return Members(folder, federation(2, **more), {name: list(own) for name, own in TABLES.items()})


def certified(folder: Path) -> Members:
    """The same with certificates, which sign what parties keep."""
    there = members(folder)
    pins = make_federation(folder / "pki", ["party1", "party2"])
    server = pins.pop("server")
    there.agreed = there.agreed.model_copy(update={"server": server, "parties": pins})
    there.identities = {name: load_identity(folder / "pki" / name) for name in pins}
    return there


def raised_anew(there: Members, found: Found) -> bool:
    """True if every member found the right rows by another alignment."""
    assert set(there.persons(found)) == set.intersection(*map(set, there.tables.values()))
    assert set(found.reused.values()) == {0}
    return "Points" in found.kinds()


def used(found: Found, party: str) -> bool:
    """True if the party has told the server that it uses its kept alignment."""
    return any(isinstance(m, Reused) for sender, _to, m in found.messages if sender == party)


class TestTheNextRun:
    """Reuse, and its conditions."""

    def test_uses_the_same_rows_and_raises_nothing(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        first, second = there.run(), there.run()
        assert raised_anew(there, first) and set(there.persons(first)) == COMMON
        assert there.persons(second) == there.persons(first)
        assert set(second.reused.values()) == {3}
        assert second.kinds() == {"Held", "Offers", "Stated", "Statements", "Reused", "Settled"}
        assert len({there.record(name, 2).number for name in TABLES}) == 1  # it can be resumed and asked

    def test_agrees_in_two_round_trips(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        rounds = {type(m): m.round for _from, _to, m in there.run().messages}
        assert (rounds[Held], rounds[Offers], rounds[Stated], rounds[Statements], rounds[Reused]) == (1, 1, 2, 2, 3)

    def test_shows_nothing_that_a_key_can_be_tested_against(self, tmp_path: Path) -> None:
        """The identity is of the alignment, not of its keys: the same keys, aligned again, have another."""
        there = members(tmp_path)
        identities = []
        for _ in range(2):
            there.run()
            identities.append({m.identity for _from, _to, m in there.run().messages if isinstance(m, Held)})
            shutil.rmtree(tmp_path / "kept")
        assert len(identities[0]) == len(identities[1]) == 1 and identities[0] != identities[1]

    @pytest.mark.parametrize(
        ("member", "change"), [(SERVER, ["new"]), ("party1", ["ada"]), ("party2", "swapped"), (SERVER, "swapped")]
    )
    def test_of_a_changed_table_is_aligned_anew(self, tmp_path: Path, member: str, change: Any) -> None:
        there = members(tmp_path)
        there.run()
        own = list(TABLES[member])
        if change == "swapped":
            own[0], own[1] = own[1], own[0]
        elif change == ["ada"]:
            own.remove("ada")
        else:
            own += change
        there.tables[member] = own
        assert raised_anew(there, there.run())
        assert set(there.run().reused.values()) == {len(COMMON) - (change == ["ada"])}
        there.tables[member] = list(TABLES[member])
        assert raised_anew(there, there.run())  # others hold the newer one, of the changed table

    @pytest.mark.parametrize(
        "change",
        [
            lambda own: {"parties": {**own.parties, "party2": own.parties["party1"]}},
            lambda own: {"server": own.parties["party1"]},
            lambda own: {"id": "another"},
            lambda own: {"align": "sorted"},
            lambda own: {"keys": own.keys.model_copy(update={"case": "fold"})},
        ],
        ids=["a party's pin", "the server's pin", "federation", "align", "keys"],
    )
    def test_of_another_agreement_holds_nothing(self, tmp_path: Path, change: Callable[..., dict[str, Any]]) -> None:
        there = certified(tmp_path)
        there.run()
        before = there.agreed
        there.agreed = before.model_copy(update=change(before))
        assert all(there.keeping(name).held(there.keys(name)) is None for name in TABLES)
        there.agreed = before
        assert all(there.keeping(name).held(there.keys(name)) is not None for name in TABLES)

    def test_with_another_party_is_aligned_anew(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        there.agreed, there.tables["party3"] = federation(3), ["dan", "ada"]
        found = there.run()
        assert raised_anew(there, found) and set(there.persons(found)) == {"dan", "ada"}

    def test_under_another_policy_is_aligned_anew(self, tmp_path: Path) -> None:
        rules = ({"min_common_rows": 2}, {"max_other_rows": 9}, {"max_predicted_rows": 50}, {"min_predicted_rows": 1})
        assert len({PolicyConfig(**rule).alignment_digest for rule in ({}, *rules)}) == 5
        there = members(tmp_path)
        there.run()
        there.policies["party2"] = PolicyConfig(**rules[0])
        found = there.run()
        assert raised_anew(there, found) and found.without == ("party2",)

    def test_is_refused_under_a_policy_that_the_kept_rows_do_not_meet(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        there.policies["party2"] = PolicyConfig(min_common_rows=4)
        with pytest.raises(ConfigError, match="min_common_rows = 4: the federation has 3 common keys"):
            there.persons(there.run())

    @pytest.mark.parametrize("member", list(TABLES))
    def test_is_aligned_anew_by_all_if_one_has_lost_its_own(self, tmp_path: Path, member: str) -> None:
        there = members(tmp_path)
        there.run()
        shutil.rmtree(tmp_path / "kept" / member)
        found = there.run()
        assert raised_anew(there, found) and found.without == (member,)
        assert set(there.run().reused.values()) == {3}

    def test_is_aligned_anew_if_one_holds_an_older_alignment(self, tmp_path: Path) -> None:
        """As after a crash of one member between its own file and the others'."""
        there = members(tmp_path)
        there.run()
        shutil.copytree(tmp_path / "kept" / "party1", tmp_path / "older")
        for name in (SERVER, "party2"):
            shutil.rmtree(tmp_path / "kept" / name)
        there.run()
        shutil.rmtree(tmp_path / "kept" / "party1")
        (tmp_path / "older").rename(tmp_path / "kept" / "party1")
        found = there.run()
        assert raised_anew(there, found) and found.without == ("party1",)

    def test_can_be_refused_by_one_party(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.policies["party2"] = PolicyConfig(reuse_alignment=False)
        assert raised_anew(there, there.run()) and raised_anew(there, there.run())
        assert not (tmp_path / "kept" / "party2").exists()

    @pytest.mark.parametrize("how", ["days", "seeded"])
    def test_keeps_nothing_where_it_is_switched_off(self, tmp_path: Path, how: str) -> None:
        there = members(tmp_path, keys={"seeded": how == "seeded"})
        there.days = 0 if how == "days" else 30
        assert raised_anew(there, there.run()) and raised_anew(there, there.run())
        assert not (tmp_path / "kept").exists()

    def test_works_for_equal_tables_too(self, tmp_path: Path) -> None:
        there = members(tmp_path, align="sorted")
        there.tables = {name: sorted(COMMON, reverse=name == SERVER) for name in TABLES}
        first, second = there.run(), there.run()
        assert there.persons(first) == there.persons(second) and set(second.reused.values()) == {3}


class TestALyingServer:
    """Cannot have a party use an alignment that not all of them hold."""

    def refused(self, there: Members, change: Callable[[str, Any], Any], said: str) -> None:
        found = there.run(lambda sender, to, item: change(to, item) if sender == SERVER else item)
        errors = [str(error) for error in found.rows.values() if isinstance(error, Exception)]
        assert any(said in error for error in errors), errors
        assert not used(found, "party1")

    def test_that_names_another_alignment(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        there.run()
        other = lambda _to, item: replace(item, identity="f" * 64) if isinstance(item, Offers) else item  # noqa: E731
        self.refused(there, other, "Offers.identity: expected")

    def test_that_says_a_party_holds_what_it_has_lost(self, tmp_path: Path) -> None:
        """It knows the identity, and cannot sign for the party."""
        there = certified(tmp_path)
        there.run()
        identity = there.keeping("party1").held(there.keys("party1"))
        assert identity is not None
        shutil.rmtree(tmp_path / "kept" / "party2")

        def lie(sender: str, _to: str, item: Any) -> Any:
            if sender == SERVER and isinstance(item, Offers):
                return replace(item, identity=identity.identity, number="a number", rows=3)
            return item

        found = there.run(lie)
        assert "none: we keep none" in str(found.rows["party2"])
        assert isinstance(found.rows["party1"], Exception) and not used(found, "party1")

    @pytest.mark.parametrize("which", ["an earlier session", "the same session"])
    def test_that_shows_statements_of_an_earlier_agreement(self, tmp_path: Path, which: str) -> None:
        """It also repeats the random number that party2 drew then, so that only that of party1 differs."""
        there = certified(tmp_path)
        there.run()
        earlier = [m for _f, to, m in there.run().messages if to == "party1"]
        offers = next(m for m in earlier if isinstance(m, Offers))
        statements = next(m for m in earlier if isinstance(m, Statements))
        if which == "the same session":
            there.runs -= 1

        def replay(to: str, item: Any) -> Any:
            if to == "party1" and isinstance(item, Offers):
                nonces = offers.nonces.clone()
                nonces[1] = item.nonces[1]
                return replace(item, nonces=nonces)
            return statements if to == "party1" and isinstance(item, Statements) else item

        self.refused(there, replay, "the statement that party2 holds the kept alignment is not signed by 'party2'")

    def test_that_shows_parties_different_random_numbers(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        there.run()

        def mix(to: str, item: Any) -> Any:
            if not isinstance(item, Offers):
                return item
            nonces = item.nonces.clone()
            nonces[0] = to_tensor(os.urandom(32))
            return replace(item, nonces=nonces)

        self.refused(there, mix, "the statement that party2 holds the kept alignment is not signed by 'party2'")

    def test_that_shows_one_party_the_statement_of_another(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        there.run()
        size = len(there.identities)

        def swap(_to: str, item: Any) -> Any:
            if not isinstance(item, Statements):
                return item
            pieces = take_apart(item.signatures, item.signature_lengths)
            assert len(pieces) == size + 1
            signatures, lengths = lay_out([pieces[0], pieces[2], pieces[1]])
            return replace(item, signatures=signatures, signature_lengths=lengths)

        self.refused(there, swap, "is not signed by 'party2'")

    def test_that_leaves_out_a_signature(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        there.run()

        def torn(_to: str, item: Any) -> Any:
            return replace(item, signature_lengths=item.signature_lengths + 1) if isinstance(item, Statements) else item

        self.refused(there, torn, "Statements.lengths")

    def test_that_changes_a_party_s_random_number(self, tmp_path: Path) -> None:
        there = certified(tmp_path)
        change = lambda _to, m: replace(m, nonces=m.nonces.flip(0)) if isinstance(m, Offers) else m  # noqa: E731
        self.refused(there, change, "Offers.nonces: expected that of party")

    def test_that_names_one_to_a_party_that_keeps_none(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        made_up = lambda _to, m: replace(m, identity="f" * 64, number="n") if isinstance(m, Offers) else m  # noqa: E731
        self.refused(there, made_up, "none: we keep none")

    def test_that_takes_a_part_for_a_run(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        part = lambda _to, m: replace(m, rows=2) if isinstance(m, Offers) else m  # noqa: E731
        self.refused(there, part, "all 3 of the kept alignment")

    def test_two_runs_whose_numbers_were_mixed_have_other_identities(self, tmp_path: Path) -> None:
        """If parties are shown other numbers of each other, nothing is used again."""
        there = members(tmp_path)

        def mix(sender: str, to: str, item: Any) -> Any:
            if sender != SERVER or not isinstance(item, Offers):
                return item
            nonces = item.nonces.clone()
            nonces[0] = to_tensor(os.urandom(32))
            return replace(item, nonces=nonces)

        assert raised_anew(there, there.run(mix))
        assert raised_anew(there, there.run())


class TestAPrediction:
    """Ids of the run need no exchange; others are aligned, and nothing more is learnt of them."""

    def test_of_ids_of_the_run_raises_nothing(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        asked = ["dan", "ada"]
        found = there.predict(asked)
        assert set(there.persons(found, asked)) == set(asked) and set(found.reused.values()) == {2}
        assert "Points" not in found.kinds() and "Census" not in found.kinds()

    def test_of_ids_of_both_kinds_aligns_the_others_alone(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        asked = ["dan", "eve", "zoe", "ada"]  # eve is not at party1
        found = there.predict(asked)
        assert set(there.persons(found, asked)) == {"dan", "ada"} and set(found.reused.values()) == {2}
        sizes = next(m.rows.tolist() for _f, _to, m in found.messages if type(m).__name__ == "Sizes")
        assert sizes == [2, 7, 5]

    def test_of_new_ids_alone_finds_them(self, tmp_path: Path) -> None:
        """A table that has grown is another table: its owner keeps nothing that holds."""
        there = members(tmp_path)
        there.run()
        for name in ("party1", "party2"):
            there.tables[name] = [*TABLES[name], "zoe"]
        asked = ["zoe", "ada"]
        found = there.predict(asked)
        assert set(there.persons(found, asked)) == {"zoe", "ada"} and set(found.reused.values()) == {0}

    def test_of_other_ids_alone_blames_nobody(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        for name in ("party1", "party2"):
            there.tables[name] = [*TABLES[name], "zoe"]
        there.run()
        found = there.predict(["zoe"])
        assert there.persons(found, ["zoe"]) == ["zoe"] and found.without == ()

    def test_the_order_of_the_request_is_not_shown(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        orders = set()
        for asked in (["dan", "ada", "bob"], ["bob", "ada", "dan"]):
            found = there.predict(asked)
            orders.add(tuple(there.persons(found, asked)))
        assert len(orders) == 1

    @pytest.mark.parametrize(
        ("positions", "said"), [([0, 3], "0 to 2"), ([1, 1], "every row once")], ids=["outside", "twice"]
    )
    def test_no_row_outside_the_intersection_can_be_asked_for(
        self, tmp_path: Path, positions: list[int], said: str
    ) -> None:
        there = members(tmp_path)
        there.run()

        def ask(sender: str, _to: str, item: Any) -> Any:
            if sender == SERVER and isinstance(item, Positions):
                return replace(item, positions=MaskedTensor(torch.tensor(positions), "test"))
            return item

        with pytest.raises(ContractError, match=said):
            there.persons(there.predict(["dan", "ada"], ask))

    def test_other_ids_count_as_in_a_new_alignment(self, tmp_path: Path) -> None:
        """Ids outside the intersection cannot be smuggled past the policy by way of those inside."""
        there = members(tmp_path)
        there.policies["party2"] = PolicyConfig(max_other_rows=7, min_common_rows=2)
        there.run()
        asked = ["dan", "ada", *(f"guess {n}" for n in range(8))]
        with pytest.raises(ConfigError, match="max_other_rows = 7: the federation has 8 keys at server"):
            there.persons(there.predict(asked), asked)
        with pytest.raises(ConfigError, match="min_common_rows = 2: the federation has 1 common keys"):
            there.persons(there.predict(["dan"]), ["dan"])

    @pytest.mark.parametrize("reuse", [True, False])
    def test_has_a_minimum_of_its_own(self, tmp_path: Path, reuse: bool) -> None:
        there = members(tmp_path)
        there.policies["party2"] = PolicyConfig(min_common_rows=3, min_predicted_rows=2, reuse_alignment=reuse)
        there.run()
        assert set(there.persons(there.predict(["dan", "ada"]), ["dan", "ada"])) == {"dan", "ada"}
        with pytest.raises(ConfigError, match="min_predicted_rows = 2: the federation has 1 common keys") as raised:
            there.persons(there.predict(["dan"]), ["dan"])
        assert "at least 2 ids" in raised.value.hint

    def test_a_party_that_refuses_reuse_has_everything_aligned(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.policies["party1"] = PolicyConfig(reuse_alignment=False)
        there.run()
        found = there.predict(["dan", "ada"])
        assert "Points" in found.kinds() and set(there.persons(found, ["dan", "ada"])) == {"dan", "ada"}


class TestTheDisk:
    """Files: their rights, their content, and when they are there."""

    def test_the_owner_alone_can_read(self, tmp_path: Path) -> None:
        before = os.umask(0o022)  # the process's own umask does not matter
        try:
            members(tmp_path).run()
        finally:
            os.umask(before)
        modes = {
            path.relative_to(tmp_path / "kept"): stat.S_IMODE(path.stat().st_mode)
            for name in TABLES
            for path in (tmp_path / "kept" / name, *(tmp_path / "kept" / name).rglob("*"))
        }
        files = {path.name for path in modes if (tmp_path / "kept" / path).is_file()}
        assert {"exponent.json", "raised", "alignments.salt"} < files
        for path, mode in modes.items():
            assert mode == (0o700 if (tmp_path / "kept" / path).is_dir() else 0o600), path

    def test_no_key_and_no_digest_of_keys_alone_is_on_it(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.tables = {name: [f"the person {key}" for key in own] for name, own in TABLES.items()}
        there.run()
        for name in TABLES:
            content = b"".join(p.read_bytes() for p in (tmp_path / "kept" / name).rglob("*") if p.is_file())
            content += b"".join(str(p).encode() for p in (tmp_path / "kept" / name).rglob("*"))
            digest = there.keys(name).digest
            for known in (b"the person", digest, digest.hex().encode(), digest.hex()[:32].encode()):
                assert known not in content

    def test_it_is_durable_before_it_is_acknowledged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there, synced = members(tmp_path), list[Path]()
        write = files.write_durably
        monkeypatch.setattr(files, "write_durably", lambda path, *more: (write(path, *more), synced.append(path))[0])
        seen = []

        def look(sender: str, _to: str, item: Any) -> Any:
            if isinstance(item, Kept | Reused):
                seen.append(sender)
                home = tmp_path / "kept" / sender
                assert any(path.suffix == ".alignment" and home in path.parents for path in synced)
                assert there.record(sender, there.runs).number
            return item

        there.persons(there.run(look))
        there.persons(there.run(look))
        assert sorted(seen) == ["party1", "party1", "party2", "party2"]

    def test_a_crash_before_the_others_have_it_costs_another_alignment(self, tmp_path: Path) -> None:
        there = members(tmp_path)

        class Killed(Exception):
            pass

        def die(sender: str, _to: str, item: Any) -> Any:
            if sender == "party2" and isinstance(item, Kept):
                raise Killed
            return item

        found = there.run(die)
        assert isinstance(found.rows["party2"], Killed)
        assert there.keeping("party2").held(there.keys("party2")) is not None
        assert there.keeping(SERVER).held(there.keys(SERVER)) is None
        assert raised_anew(there, there.run())
        assert set(there.run().reused.values()) == {3}

    def test_a_damaged_file_is_as_good_as_none(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        (file,) = (tmp_path / "kept" / "party1").glob("*/*.alignment")
        content = bytearray(file.read_bytes())
        content[-3] ^= 1
        file.write_bytes(content)
        found = there.run()
        assert raised_anew(there, found) and found.without == ("party1",)

    def test_a_newer_format_is_as_good_as_none(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        there = members(tmp_path)
        there.run()
        monkeypatch.setattr("colonnade.common.alignment.store.FORMAT", 2)
        assert there.keeping("party1").held(there.keys("party1")) is None

    def test_what_is_too_old_is_removed(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        there.run()
        before = (tmp_path / "kept").rglob("exponent.json")
        secrets = {path: path.read_bytes() for path in before}
        there.now += 29 * 86400
        assert set(there.run().reused.values()) == {3}
        there.now += 2 * 86400
        assert raised_anew(there, there.run())
        assert len(secrets) == 3 and all(path.read_bytes() != old for path, old in secrets.items())

    def test_one_that_refuses_is_a_warning(self, tmp_path: Path) -> None:
        there = members(tmp_path)
        (tmp_path / "kept").mkdir()
        (tmp_path / "kept" / "party1").write_text("in the way")
        assert raised_anew(there, there.run()) and raised_anew(there, there.run())
        assert any("alignments are not kept" in said for said in there.warnings)


class TestTheExponent:
    """What was raised is not raised again."""

    @pytest.fixture
    def count(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        raised, raise_all = list[int](), Secret.raise_all
        monkeypatch.setattr(
            Secret, "raise_all", lambda own, elements: (raised.append(len(elements) // 32), raise_all(own, elements))[1]
        )
        return raised

    def test_a_row_more_is_one_exponentiation_a_party(self, tmp_path: Path, count: list[int]) -> None:
        there = members(tmp_path)
        there.run()
        assert sum(count) == 2 * sum(map(len, TABLES.values())) + 2 * len(TABLES[SERVER])
        count.clear()
        there.tables["party1"] = [*TABLES["party1"], "eve"]
        assert set(there.persons(there.run())) == {*COMMON, "eve"}
        assert sum(count) == 2

    def test_an_alignment_that_breaks_off_keeps_what_was_raised(self, tmp_path: Path, count: list[int]) -> None:
        there = members(tmp_path)
        there.run()
        there.tables["party1"] = [*TABLES["party1"], "eve"]
        count.clear()

        def die(sender: str, _to: str, item: Any) -> Any:
            if sender == "party2" and type(item).__name__ == "Points":
                raise ConnectionError
            return item

        assert isinstance(there.run(die).rows["party2"], ConnectionError)
        there.persons(there.run())
        assert sum(count) == 2  # both parties' own work on the new key, once in the two runs together

    @pytest.mark.parametrize(("after", "more"), [(2, ["eve"]), (9, []), (14, ["eve"])])
    def test_members_that_are_killed_go_on_where_they_stopped(
        self, tmp_path: Path, count: list[int], after: int, more: list[str]
    ) -> None:
        """All are one process here. The next attempt may be with another table, whose rows it finds all the same."""
        there, sent = members(tmp_path), []

        def die(sender: str, _to: str, item: Any) -> Any:
            if type(item).__name__ == "Points":
                sent.append(sender)
            if len(sent) == after:
                (tmp_path / "count").write_text(str(sum(count)))
                os.kill(os.getpid(), signal.SIGKILL)
            return item

        if not (child := os.fork()):
            there.run(die)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        before = int((tmp_path / "count").read_text())
        there.tables["party1"] += more
        assert set(there.persons(there.run())) == COMMON | set(more)
        both, whole = sum(count) + before, 2 * sum(map(len, TABLES.values())) + 2 * len(TABLES[SERVER])
        assert before > 0 and both == whole + 2 * len(more)
        assert not list(tmp_path.rglob("*.journal"))

    def test_a_prediction_raises_the_requested_ids_alone(self, tmp_path: Path, count: list[int]) -> None:
        there = members(tmp_path)
        there.run()
        count.clear()
        there.persons(there.predict(["ada", "zoe", "yul"]), ["ada", "zoe", "yul"])
        assert sum(count) == 2 * 4  # twice by the server's own secret, and by two parties

    def test_requests_are_raised_to_a_new_secret_every_time(self, tmp_path: Path) -> None:
        """Parties cannot tell that an id is asked for again, unless all know it."""
        there = members(tmp_path)
        there.run()
        seen: list[set[bytes]] = []
        for _ in range(2):
            found = there.predict(["ada", "zoe", "yul"])
            first = next(
                m.points for f, to, m in found.messages if (f, to) == (SERVER, "party1") and hasattr(m, "points")
            )
            seen.append({row.numpy().tobytes() for row in first})
        assert seen[0] and not seen[0] & seen[1]
