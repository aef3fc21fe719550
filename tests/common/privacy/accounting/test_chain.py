"""The ledger's chain of hashes: alterations are found, and a crash leaves none."""

from __future__ import annotations

import hashlib
import json
import resource
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.common.privacy.accounting.budget import Budget
from colonnade.common.privacy.accounting.ledger import BEGINNING, Chain, Ledger, newest, verify
from colonnade.common.run.json_text import read_lines
from tests.common.observability.test_ledger import embedding
from tests.support import warm

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]


def written(path: Path, *entries: dict[str, object]) -> Path:
    chain = Chain(path)
    for entry in entries:
        chain.append(entry)
    chain.close()
    return path


def lines(path: Path, count: int) -> list[bytes]:
    path.unlink(missing_ok=True)
    return written(path, *({"round": n, "said": "x" * n} for n in range(count))).read_bytes().splitlines(keepends=True)


def test_a_hash_is_that_of_the_one_before_and_the_line_without_it(tmp_path: Path) -> None:
    head = BEGINNING
    for raw in lines(tmp_path / "l", 3):
        entry = json.loads(raw)
        stored = entry.pop("chain")
        head = hashlib.sha256((head + json.dumps(entry)).encode()).hexdigest()
        assert stored == head
    assert newest(tmp_path / "l") == head == verify(tmp_path / "l").head


@given(count=st.integers(2, 8), at=st.integers(0, 6), how=st.sampled_from(["take out", "alter", "double", "strip"]))
def test_the_first_line_that_does_not_fit_is_named(
    tmp_path_factory: pytest.TempPathFactory, count: int, at: int, how: str
) -> None:
    path, at = tmp_path_factory.mktemp("chain") / "l", at % (count - 1)
    kept = lines(path, count)
    match how:
        case "take out":
            changed, broken = kept[:at] + kept[at + 1 :], at + 1
        case "alter":
            changed, broken = [*kept[:at], kept[at].replace(b'"round": ', b'"round": 1'), *kept[at + 1 :]], at + 1
        case "double":
            changed, broken = [*kept[: at + 1], *kept[at:]], at + 2
        case _:
            stripped = {k: v for k, v in json.loads(kept[at]).items() if k != "chain"}
            changed, broken = [*kept[:at], json.dumps(stripped).encode() + b"\n", *kept[at + 1 :]], at + 1
    path.write_bytes(b"".join(changed))
    found = verify(path)
    assert found.broken == broken and found.lines == broken - 1


def test_lines_removed_at_the_end_are_found_only_by_a_noted_hash(tmp_path: Path) -> None:
    path = tmp_path / "l"
    kept = lines(path, 4)
    noted = newest(path)
    path.write_bytes(b"".join(kept[:3]))
    assert verify(path).broken is None and verify(path).head != noted


def test_the_chain_goes_over_a_line_that_a_crash_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "l"
    kept = lines(path, 3)
    path.write_bytes(b"".join(kept)[:-20])
    written(path, {"round": 3}, {"round": 4})
    found = verify(path)
    assert (found.lines, found.torn, found.broken) == (4, (3,), None)


def test_a_line_that_the_disk_took_a_part_of_is_passed_over_by_the_next(tmp_path: Path) -> None:
    path, chain = tmp_path / "l", Chain(tmp_path / "l")
    chain.append({"round": 1})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
        with pytest.raises(OSError, match="File too large"):
            chain.append({"round": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    for round in (3, 4):
        chain.append({"round": round})
    chain.close()
    found = verify(path)
    assert (found.lines, found.torn, found.broken) == (3, (2,), None)
    assert [entry["round"] for entry in read_lines(path)] == [1, 3, 4]


@given(kept=st.integers(0, 400))
def test_wherever_a_crash_cuts_the_file_off_the_next_start_goes_on(
    tmp_path_factory: pytest.TempPathFactory, kept: int
) -> None:
    path = tmp_path_factory.mktemp("chain") / "l"
    whole = b"".join(lines(path, 4))
    path.write_bytes(whole[:kept])
    written(path, {"round": 5})
    found = verify(path)
    assert found.broken is None and [entry["round"] for entry in read_lines(path)][-1] == 5
    assert len(found.torn) <= 1 and found.lines >= whole[:kept].count(b"\n") + 1


WRITER = """
import sys
from pathlib import Path
from colonnade.common.privacy.accounting.ledger import Chain
chain = Chain(Path(sys.argv[1]))
for number in range(200):
    chain.append({"number": number})
"""


def test_processes_that_write_at_the_same_time_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "l"
    writers = [warm.Popen([sys.executable, "-c", WRITER, path], cwd=ROOT) for _ in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    found = verify(path)
    assert (found.lines, found.torn, found.broken) == (600, (), None)


def test_several_writers_in_turn_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger, budget = Ledger(path), Budget(path, limit=100, expected=64)
    for round in range(1, 8):
        budget.spend()
        ledger.charge(embedding(round), "server", "gaussian", 0.1)
    budget.close()
    ledger.charge(embedding(8), "server", "gaussian", 0.1)
    ledger.close()
    found = verify(path)
    assert found.broken is None and found.lines == len(path.read_text().splitlines()) > 8


def test_the_newest_hash_of_a_long_file_is_found_at_its_end(tmp_path: Path) -> None:
    path = written(tmp_path / "l", *({"n": n, "said": "x" * 5000} for n in range(40)))
    assert newest(path) == verify(path).head
    assert newest(written(path, {"said": "x" * 200_000})) == verify(path).head
    assert newest(tmp_path / "none") == BEGINNING
