"""Whole commands in a terminal of 80 columns: no line is longer, whatever is drawn over; in a pipe nothing is drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.support import warm
from tests.support.terminal import in_terminal, lines_of

ROOT = Path(__file__).parents[3]
DEMO = ROOT / "experiments/demo.yaml"
SHORT = ("--set", "federation.epochs=2")


def widest(said: str) -> int:
    return max(map(cell_len, lines_of(said)))


@pytest.mark.slow
def test_a_simulation_fits(tmp_path: Path) -> None:
    code, said = in_terminal(80, tmp_path, "simulate", DEMO, *SHORT)
    assert code == 0 and widest(said) <= 80, said
    shown = lines_of(said)
    summary = shown[next(place for place, line in enumerate(shown) if line.endswith(": completed")) :]
    heads = [line.split("  ")[0] for line in summary[1:] if not line.startswith(" ")]
    assert len(summary) <= 20 and heads[:2] == ["quality", "protection"] and heads[-2:] == ["report", "folder"]


@pytest.mark.processes
def test_a_run_of_processes_fits_and_so_does_what_reads_it(tmp_path: Path) -> None:
    code, said = in_terminal(80, tmp_path, "up", DEMO, *SHORT, "--out", "run")
    assert code == 0 and widest(said) <= 80, said
    assert "colonnade report run" in said and str(tmp_path) not in said
    for words in (("ledger", "run/parties/party1"), ("report", "run"), ("check", DEMO, *SHORT)):
        code, said = in_terminal(80, tmp_path, *words)
        longest = max(lines_of(said), key=cell_len)
        assert code == 0 and (cell_len(longest) <= 80 or " " not in longest.strip()), said  # a path is whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["protocols"], ["datasets"], ["--help"], ["up", "--help"], ["chek"], ["up", "no.yaml"]]
)
def test_what_is_listed_fits(tmp_path: Path, words: list[str]) -> None:
    _, said = in_terminal(66, tmp_path, *words, COLONNADE_DATA="")
    assert widest(said) <= 66, said


@pytest.mark.slow
def test_in_a_pipe_a_run_has_plain_lines_and_no_control(tmp_path: Path) -> None:
    words = (*warm.COLONNADE, "simulate", DEMO, *SHORT)
    done = warm.run(words, check=False, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0 and not {"\x1b", "\r", "\x07"} & set(done.stdout)
    assert len(done.stdout.splitlines()) < 30 and not done.stderr
    protection = next(line for line in done.stdout.splitlines() if line.startswith("protection"))
    assert protection.endswith("in the clear")  # a fact is a line


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_and_movements_are_only_where_they_are_wanted(tmp_path: Path, environment: dict[str, str]) -> None:
    code, said = in_terminal(80, tmp_path, "simulate", DEMO, *SHORT, **environment)
    assert code == 0 and widest(said) <= 80
    colours = [code for code in ("\x1b[36m", "\x1b[33m", "\x1b[31m") if code in said]
    assert not colours, said
    assert ("\x1b[" in said) == ("NO_COLOR" in environment)  # dim and bold are no colours
