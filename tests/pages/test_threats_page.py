"""docs/members_that_lie.md and the pages of the threat model: what they say of liars names a test, or is no promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from colonnade.common.config.policy import PolicyConfig

ROOT = Path(__file__).parents[2]
FILES = (*(ROOT / "tests").rglob("test_*.py"), *(ROOT / "lab/tests").rglob("test_*.py"))
LIARS = "members_that_lie.md"
REMAINING = "remaining_threats.md"
SECTION = "# Members that lie\n", "\n## "
NONE = "nothing is promised"
PROMISES = {
    "alignment", "kept alignments", "first models", "blinded sums", "FedVS's shares", "a party's noise",
    "a row's noise", "noise once", "one code a row", "private labels", "private answers", "ledgers", "transcripts",
    "sums under encryption", "checkpoints, sessions", "predictions", "strangers", "messages",
}  # fmt: skip


def table(page: str, section: tuple[str, str]) -> list[list[str]]:
    """Rows of the first table of a page's section, the head first, as cells."""
    text = (ROOT / "docs" / page).read_text()
    lines = text.partition(section[0])[2].partition(section[1])[0].splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in (*rows[:1], *rows[2:])]


def faults(cell: str) -> list[str]:
    """Causes for which a cell does not stand: a test that is missing or ambiguous, or none, unless it is no promise."""
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", cell)
    found = [] if named or cell.startswith(NONE) else [f"neither a test nor {NONE!r}: {cell}"]
    for path, function in named:
        files = [file for file in FILES if file.as_posix().endswith(f"/{path}")]
        if len(files) != 1:
            found.append(f"{len(files)} files are named {path}")
        elif function and not re.search(rf"^ *(?:async )?def {function}\(", files[0].read_text(), re.M):
            found.append(f"{path} has no {function}")
    return found


def test_every_promise_has_a_cell_for_each_liar() -> None:
    head, *rows = table(LIARS, SECTION)
    assert head == ["promise", "the server lies", "a party lies", "both collude"]
    assert {re.sub(r"^\[(.+)\]\(.+\)$", r"\1", row[0]) for row in rows} == PROMISES and len(rows) == len(PROMISES)
    assert all(len(row) == len(head) for row in rows)


@pytest.mark.parametrize("row", table(LIARS, SECTION)[1:], ids=lambda row: row[0].split("]")[0].strip("["))
def test_every_cell_names_tests_that_there_are_or_is_no_promise(row: list[str]) -> None:
    assert [fault for cell in row[1:] for fault in faults(cell)] == []


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("nothing", "neither a test nor"),
        ("its labels; nothing is promised", "neither a test nor"),
        ("nothing (`test_no_such_scene.py`)", "0 files are named"),
        ("nothing (`test_resume.py`)", "2 files are named"),
        ("nothing (`test_pin.py::test_no_such_case`)", "test_pin.py has no test_no_such_case"),
    ],
    ids=["no test", "half a promise", "a test that was removed", "two of that name", "a function that was renamed"],
)
def test_a_cell_that_does_not_stand_is_found(cell: str, said: str) -> None:
    (fault,) = faults(cell)
    assert said in fault
    assert faults(f"{NONE}: it has them") == faults("nothing (`test_pin.py`)") == []


MODEL = "".join((ROOT / f"docs/{page}").read_text() for page in ("threat_model.md", "checked_threats.md", REMAINING))


def test_every_statement_of_the_threat_model_names_a_test_and_its_function() -> None:
    head, *rows = table("checked_threats.md", ("# What is checked\n", "\n## "))
    assert head == ["statement", "asset", "test"] and len(rows) > 15
    for statement, _, tests in rows:
        assert faults(tests) == [] and NONE not in tests, statement
        assert tests.count("`") == 2 * tests.count("::"), statement  # a function of each file


def test_every_remaining_threat_names_what_an_operator_can_do() -> None:
    head, *rows = table(REMAINING, ("# What remains\n", "\n## "))
    assert head == ["threat", "by", "consequence", "what an operator can do"]
    assert all(len(row) == len(head) and all(row) for row in rows)
    known = set(PolicyConfig.model_fields)
    named = set(re.findall(r"`policy\.(\w+)`", MODEL))
    assert {"max_other_rows", "min_parties", "min_colluders", "recovery"} <= named <= known
