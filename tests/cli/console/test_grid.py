"""Sentences, tables, summaries and errors at any width: no word is cut, no line too long."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from colonnade.reports.console import screen
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import Screen
from colonnade.reports.console.summary import LINES, show_summary

WIDTHS = (60, 80, 120)
SENTENCE = "the server sees every party's embeddings of the training, validation and test rows, in the clear"
WORDS = SENTENCE.split()


def printed(width: int | None, show: Any) -> list[str]:
    shown = io.StringIO()
    how = {} if width is None else {"force_terminal": True, "width": width, "color_system": None}
    show(Screen(file=shown, **how))
    return shown.getvalue().splitlines()


def table() -> Grid:
    made = Grid("rank", "party", "what it sees", "AUC", "sent")
    made.add_row("1", "a-bank-with-a-long-name", " ".join(WORDS), "0.8568", "12.0 MB")
    made.add_row("12", "b", "-", "0.9", "3 kB")
    return made


@pytest.mark.parametrize("width", WIDTHS)
def test_a_sentence_breaks_between_words_and_a_pipe_breaks_nothing(width: int) -> None:
    sentence = " ".join(WORDS * 3)
    lines = printed(width, lambda console: console.say(sentence))
    assert len(lines) > 1 and max(map(cell_len, lines)) <= width and " ".join(" ".join(lines).split()) == sentence
    assert all(line.startswith("  ") for line in lines[1:])
    assert printed(None, lambda console: console.say(sentence)) == [sentence]


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_a_path_or_a_command_is_never_broken(width: int) -> None:
    command = "colonnade up --resume /a/folder/with/a/long/name/of/many/characters/run"
    assert command in "\n".join(printed(width, lambda console: console.point("go on with it", command)))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_table_fits_and_numbers_are_aligned(width: int) -> None:
    lines = printed(width, lambda console: console.show(table()))
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).split()
    assert set(WORDS) <= set(words) and {"0.8568", "MB", "a-bank-with-a-long-name"} <= set(words)
    ends = [line.index(number) + len(number) for line in lines for number in ("0.8568", "0.9 ") if number in line]
    assert len(ends) == 2


def test_where_columns_do_not_fit_every_row_is_a_block() -> None:
    lines = printed(40, lambda console: console.show(table()))
    assert max(map(cell_len, lines)) <= 40 and lines[0] == "1"
    assert any(line.split() == ["party", "a-bank-with-a-long-name"] for line in lines)
    assert {*WORDS, "0.8568"} <= set(" ".join(lines).split())


def test_in_a_pipe_a_row_is_a_line() -> None:
    head, first, second = printed(None, lambda console: console.show(table()))
    assert " ".join(WORDS) in first and head.index("AUC") + 3 == first.index("0.8568") + 6 and second.split()[0] == "12"


def test_wide_characters_and_controls_keep_the_columns() -> None:
    made = Grid("name", "what")
    made.add_row("銀行", "x")
    made.add_row("\x1b[2Jbank", "x")
    lines = printed(80, lambda console: console.show(made))
    assert [cell_len(line) for line in lines[1:]] == [cell_len(lines[2])] * 2 and "\x1b" not in "".join(lines)


@pytest.mark.parametrize("width", [60, 80, 120, None])
def test_a_summary_answers_first_and_is_short(tmp_path: Path, width: int | None) -> None:
    metrics = {f"test_accuracy_party{number}": 0.5 for number in range(40)}
    summary = {
        "protocol": "split", "dataset": "bank.csv", "status": "completed", "parties": [f"p{n}" for n in range(40)],
        "rounds": 1650, "seconds": 58.9, "seconds_to_first_round": 3.25, "start": "public", "privacy": None,
        "best": {"round": 1430, "val_auc": 0.9121, "val_accuracy": 0.8557, "test_auc": 0.9196, "test_accuracy": 0.8686,
                 "checkpoint": True},
        "model": {"round": 1430, "why": "the best by validation AUC"}, "stopped": None,
        "classes": {"commonest": 0, "share": 0.76, "unequal": True, "measure": "auc", "positive": "late"},
        "metrics": {**metrics, "test_auc": 0.919, "test_accuracy": 0.8664, "test_baseline_accuracy": 0.7675},
        "details": {"test": {"confusion": [[5728, 270], [757, 1060]],
                             "chance": {"metric": "auc", "value": 0.92, "chance": 0.5, "error": 0.01, "above": True}}},
        "warning": "on the test rows the model is no better than always saying the commonest class", "fallen": None,
        "bytes": {"up": {"payload": 1, "wire": 245_300_000}, "down": {"payload": 1, "wire": 179_000_000}},
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    lines = printed(width, lambda console: show_summary(console, tmp_path))
    said = " ".join(" ".join(lines).split())
    assert len(lines) <= LINES
    assert width is None or max(map(cell_len, (line for line in lines if str(tmp_path) not in line))) <= width
    assert "test AUC of late 0.9196 (chance: 0.5000), accuracy 86.86% (always the commonest class: 76.75%)" in said
    assert "7815 test rows" in said and "of round 1430, the best: validation AUC 0.9121" in said
    order = [said.index(f" {word} ") for word in ("quality", "warning", "model", "protection", "traffic", "report")]
    assert order == sorted(order)


@pytest.mark.parametrize(
    ("metric", "words"), [("accuracy", "accuracy 93.04%"), ("rmse", "RMSE 12.5"), ("loss", "loss 0.26")]
)
def test_a_summary_names_the_metric_that_chose_the_model(tmp_path: Path, metric: str, words: str) -> None:
    """And not the loss that decides between equals."""
    value = {"accuracy": 0.9304, "rmse": 12.5, "loss": 0.26}[metric]
    best = {"round": 102, f"val_{metric}": value, "val_loss": 0.26, "test_loss": 0.3}
    summary = {
        "protocol": "split", "dataset": "bank.csv", "status": "completed", "parties": ["a"], "rounds": 272,
        "seconds": 1.0, "seconds_to_first_round": 0.5, "start": "public", "privacy": None, "best": best,
        "model": {"round": 102, "why": "the best"}, "stopped": None, "metrics": {"test_accuracy": 0.9},
        "details": None, "fallen": None, "bytes": {"up": {"payload": 1, "wire": 1}, "down": {"payload": 1, "wire": 1}},
    }  # fmt: skip
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    said = " ".join(" ".join(printed(80, lambda console: show_summary(console, tmp_path))).split())
    assert f"of round 102, the best: validation {words}" in said


@pytest.mark.parametrize("width", WIDTHS)
def test_an_error_has_its_remedy_on_a_line_of_its_own(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(screen, "err", Screen(file=shown, force_terminal=True, width=width, color_system=None))
    screen.show_error(" ".join(WORDS), "do something else", "bank")
    first, *others = shown.getvalue().splitlines()
    assert first.startswith("error: bank: the server") and others[-1] == "       do something else"
    assert max(map(cell_len, (first, *others))) <= width and all(line.startswith("       ") for line in others)
