"""`colonnade check` of sums under encryption: bins, strength, range, and what sums tell."""

from __future__ import annotations

import pytest

from colonnade.cli.checks.check import check
from colonnade.common.encryption.parameters import solvable
from colonnade.common.errors import InputError
from tests.support.rooms import ROOT

DEMO = ROOT / "experiments/secureboost/demo.yaml"


def test_it_counts_bins_and_says_how_strongly_sums_are_encrypted(capsys: pytest.CaptureFixture[str]) -> None:
    check(DEMO, ())
    said = capsys.readouterr().out
    assert "party1: 569 rows, encoded as 10 numbers each; 194 bins of 10 columns" in said
    assert "encryption: 192 bits of security" in said and "noise is 2^16 times what it hides" in said
    assert "gradients of 21 bits" in said
    assert "the server learns sums of up to 160 vectors over each bin, of 409 training rows" in said  # 20 trees of 8


def test_a_range_that_is_too_large_is_refused_with_the_largest_precision() -> None:
    with pytest.raises(InputError, match="numbers of 40 bits could leave the range") as refused:
        check(DEMO, ("federation.protocol.precision=40",))
    assert refused.value.hint == "take at most 21 bits"


def test_nothing_is_said_of_an_encryption_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    check(DEMO, ("federation.protocol.gradients=clear", "federation.rounds=5", "federation.protocol.depth=1"))
    said = capsys.readouterr().out
    assert "encryption:" not in said and "the server learns sums" not in said


def test_of_sums_that_go_back_it_says_whose_labels_could_be_solved_for(capsys: pytest.CaptureFixture[str]) -> None:
    check(ROOT / "experiments/additive/demo.yaml", ())
    said = capsys.readouterr().out
    assert "bins for 409 training rows: party1 194, party2 194, party3 195, all together 583; from sums" in said
    assert "encryption: 192 bits" in said and "the server learns sums" not in said


def test_bins_that_are_more_than_a_tenth_of_the_rows_are_named() -> None:
    assert not solvable({"bank": 50, "shop": 50}, 1000)
    said = solvable({"bank": 101, "shop": 50}, 1000)
    assert said.startswith("bins for 1000 training rows: bank 101, all together 151; from sums")
    assert not solvable({"bank": 100}, 1000)


@pytest.mark.parametrize("protocol", ["additive", "scorecard"])
def test_of_sums_that_go_back_it_says_what_parties_learn(protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(ROOT / f"experiments/{protocol}/demo.yaml", ())
    said = capsys.readouterr().out
    assert "each party learns how many training rows of each class" in said and "the server learns sums" not in said
    assert "after 8 answers a hint" in said and f"docs/protocols/{protocol}.md" in said
