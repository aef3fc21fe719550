"""`colonnade report` against the files that it reads, by an independent parser."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from html import unescape
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from colonnade.cli.read.report import follow
from colonnade.common.errors import EnvironmentFault, InputError
from colonnade.launcher.folder_lock import locked_folder
from colonnade.reports.records.ledgers import KINDS
from tests.cli.data.test_wrong_input import run as command
from tests.cli.read.reports import (
    EVENTS,
    NAMES,
    VILE,
    Page,
    add_parties,
    evaluated,
    event,
    leave,
    page,
    round_of,
    summary,
)
from tests.cli.run.test_up import UNHURRIED, finish, start, wait_for_round
from tests.cli.run.test_up import write as write_file


def hrefs(made: Page) -> list[str]:
    return [str(attrs["href"]) for _, attrs in made.tags if "href" in attrs]


def test_the_page_shows_the_summary(tmp_path: Path, monkeypatch, capfd) -> None:
    folder = leave(tmp_path / "run")
    add_parties(folder)
    made = page(monkeypatch, capfd, folder)
    assert "Accuracy 92.2% on test rows that nobody trained on." in made.words
    assert "vimadmm on digits among 3 parties, 6 rounds in 9.5 s." in made.words
    assert made.cells("validation accuracy") == [["validation accuracy", "93.75%"]]
    assert made.cells("test loss") == [["test loss", "0.3125"]] and made.cells("torch") == [["torch", "9.8.7"]]
    assert "6.0 kB on the wire" in made.words and "2.7 kB of tensors" in made.words
    strip, present, bar, traffic = (row[1:] for row in made.cells("bob"))
    assert strip[-1] == "1 missed" and present == ["1", "1", "0", "0 s", "0"]
    assert bar[-1] == "2.0 kB up, 1.0 kB down" and traffic == ["2.0 kB", "1.9 kB", "1.0 kB", "900 B"]
    assert made.cells("cyd")[0][-1] == "1 return" and made.cells("cyd")[1][1:] == ["0", "0", "6", "0.6 s", "1"]
    clear = "in the clear"
    assert made.cells("Embedding") == [["Embedding", KINDS["Embedding"], clear, "3", "6", "1.2 kB", "384", "0"]]
    assert made.cells("Evaluation") == [["Evaluation", KINDS["Evaluation"], clear, "3", "3", "21 B", "192", "3"]]
    assert f"{KINDS['Embedding']} from the parties to the server {clear}" in made.words  # an arrow of the picture
    assert made.cells("4.5 s") == [["4.5 s", "cyd", "left", "it went"]]
    assert "1 of 3 parties missed some of the 6 rounds: bob (1)." in made.words


def test_curves_are_the_events(tmp_path: Path, monkeypatch, capfd) -> None:
    made = page(monkeypatch, capfd, leave(tmp_path / "run"))
    accuracy, test, *losses = made.lines("round")
    assert accuracy == [("2", "50%"), ("4", "75%"), ("6", "93.75%")] and test == [("6", "92.19%")]
    assert losses[0] == [("2", "1.25"), ("4", "0.875"), ("6", "0.25")] and losses[1] == [("6", "0.3125")]
    assert [float(y) for _, y in losses[2]] == pytest.approx([1 / n for n in range(1, 7)], rel=1e-3)
    assert [x for x, _ in made.lines("seconds")[0]] == ["2.25 s", "4.25 s", "6.25 s"]
    assert [x for x, _ in made.lines("bytes")[0]] == ["3.0 kB", "6.0 kB", "9.0 kB"]
    assert made.cells("4")[-1] == ["4", "4.25 s", "6.0 kB", "75%", "-", "0.875", "-", "0.25"]


def test_nothing_is_loaded_and_everything_is_escaped(tmp_path: Path, monkeypatch, capfd) -> None:
    vile = VILE.replace("/", "")  # which no folder's name has
    said = json.loads(json.dumps(summary(federation=VILE, dataset=VILE, error=VILE, status="failed")))
    said = json.loads(json.dumps(said).replace('"bob"', json.dumps(vile)))
    folder = leave(tmp_path / "run", said, json.loads(json.dumps(EVENTS).replace('"bob"', json.dumps(vile))))
    add_parties(folder)
    (folder / "explain.json").write_text(
        json.dumps(
            {
                "round": 6,
                "without": "mean",
                "measure": "auc",
                "said": VILE,
                "ranked": [vile],
                "parties": {vile: {"drop_missing": 0.1}},
            }
        )
    )
    (folder / "explain.html").write_text("")
    page(monkeypatch, capfd, folder)
    text = (folder / "report.html").read_text()
    made = Page(text)
    assert "<script>alert" not in text and unescape(text).count("alert(1)") == text.count("alert(1)") >= 8
    assert sum(name == "script" for name, _ in made.tags) == 1
    assert not [attrs for _, attrs in made.tags if "src" in attrs or any(key.startswith("on") for key in attrs)]
    assert [href for href in hrefs(made) if not href.startswith("#")] == ["explain.html"]
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "") and "@import" not in text
    assert f"The run failed after 6 rounds: {VILE}. Accuracy" in unescape(made.words)
    assert vile in [row[0] for row in made.rows if row]


def test_a_reader_by_ear_finds_the_way(tmp_path: Path, monkeypatch, capfd) -> None:
    made = page(monkeypatch, capfd, leave(tmp_path / "run"))
    levels = [int(name[1]) for name, _ in made.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1 and levels.count(1) == 1 and max(b - a for a, b in pairwise(levels)) <= 1
    pictures = [attrs for name, attrs in made.tags if name == "svg"]
    assert all(attrs.get("role") == "img" or attrs.get("aria-hidden") == "true" for attrs in pictures)
    spoken = sum(attrs.get("role") == "img" for attrs in pictures)
    assert sum(name == "desc" for name, _ in made.tags) == 2 * 3 + 3 == spoken - 3  # the arrows have a title alone
    assert ("main", {}) in made.tags and any(attrs.get("lang") == "en" for name, attrs in made.tags if name == "html")
    names = [name for name, _ in made.tags]
    assert names.count("caption") == sum(attrs.get("class") in ("data", "rows") for _, attrs in made.tags) > 0


def test_a_servers_own_folder(tmp_path: Path, monkeypatch, capfd) -> None:
    made = page(monkeypatch, capfd, leave(tmp_path / "run"))
    assert "Kinds of messages stand in the parties' ledgers" in made.words and not made.cells("Embedding")
    assert "in the file that the run was started with" in made.words


@pytest.mark.parametrize("status", ["interrupted", "failed"])
def test_a_run_that_ended_badly(tmp_path: Path, monkeypatch, capfd, status: str) -> None:
    said = summary(status=status, error="ada: it fell", hint="lift it", rounds=2, metrics={"train_loss": None})
    made = page(monkeypatch, capfd, leave(tmp_path / "run", said, EVENTS[:5]))
    how = "was interrupted after 2 rounds." if status == "interrupted" else "failed after 2 rounds: ada: it fell."
    assert f"The run {how} No evaluation was made." in made.words and "not measured" in made.words
    assert "ada: it fell lift it When the cause is mended" in made.words


@pytest.mark.parametrize("left", ["nothing", "of an earlier start"])
def test_a_run_that_goes_on(tmp_path: Path, monkeypatch, capfd, left: str) -> None:
    """There is no summary, or one from before the resumption: the events count."""
    begun = event("begin", 101, rounds=9, parties=list(NAMES), round=6)
    again = [event("listening", 100, waiting_for=list(NAMES)), begun, round_of(7, after=94)]
    folder = leave(tmp_path / "run", events=EVENTS + again if left != "nothing" else EVENTS[:-3])
    tree = {"federation": {"id": "three", "protocol": {"name": "vafl"}}, "server": {"labels": {"name": "moons"}}}
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    if left == "nothing":
        (folder / "summary.json").unlink()
    made = page(monkeypatch, capfd, folder)
    assert "The run has not ended" in made.words and "vafl on moons among 3 parties, " in made.words
    expected = "Round 7 of 9 so far. Accuracy 92.2% on test rows" if left != "nothing" else (
        "Round 6 of 6 so far. Accuracy 75% on validation rows")  # fmt: skip
    assert expected in made.words and made.cells("bob")[1][1:3] == ["1", "1"]
    (folder / "config.yaml").unlink()
    assert "A run among 3 parties, " in page(monkeypatch, capfd, folder).words


def test_a_summary_of_a_version_that_knew_fewer_keys(tmp_path: Path, monkeypatch, capfd) -> None:
    newer = ("label_privacy", "answer_privacy", "theorem", "pace", "timeline", "environment", "best", "stopped")
    folder = leave(tmp_path / "run", {key: value for key, value in summary().items() if key not in newer})
    assert "Accuracy 92.2% on test rows" in page(monkeypatch, capfd, folder).words


def test_a_torn_last_line_is_no_event(tmp_path: Path, monkeypatch, capfd) -> None:
    folder = leave(tmp_path / "run")
    whole = page(monkeypatch, capfd, folder).words
    with (folder / "events.jsonl").open("a") as file:
        file.write(
            '[1]\n{"kind": "round"}\n{"kind": "round", "time": 1, "round": "x"}\n{"kind": "round", "time": 17950'
        )
    assert page(monkeypatch, capfd, folder).words == whole


def test_non_finite_losses_are_omitted_and_reported(tmp_path: Path, monkeypatch, capfd) -> None:
    diverged = [*EVENTS[:-1], *({**round_of(number), "loss": None} for number in (7, 8)), EVENTS[-1]]
    made = page(monkeypatch, capfd, leave(tmp_path / "run", events=diverged))
    assert "2 values were no number and are left out" in made.words


PRIVATE = {
    "mechanism": "gaussian", "clip": 1.0, "noise_multiplier": 2.0, "adjacency": "participation", "void": None,
    "releases": {"ada": 3, "bob": 4, "cyd": None},
    "epsilon": {"participation": {"ada": 1.5, "bob": 2.25, "cyd": None},
                "replace": {"ada": 4.5, "bob": 6.125, "cyd": None}},
}  # fmt: skip


@pytest.mark.parametrize("void", [None, "noise was drawn from the seed"])
def test_privacy_spent_by_every_party(tmp_path: Path, monkeypatch, capfd, void: str | None) -> None:
    epsilon = dict.fromkeys(NAMES) if void else PRIVATE["epsilon"]["participation"]
    person = {"parties": 3, "epsilon": None, "delta": 1e-5, "void": void or "cyd did not say what was spent"}
    said = summary(privacy={**PRIVATE, "void": void}, epsilon=epsilon, delta=1e-5, person=person)
    made = page(monkeypatch, capfd, leave(tmp_path / "run", said))
    assert ["bob", "4", "2.25", "6.125", "1e-05"] in made.rows
    assert ["cyd", "not said", "not said", "not said", "1e-05"] in made.rows
    assert ("; one party alone: epsilon 2.25 at delta 1e-05" in made.words) == (void is None)
    assert (f"There is no guarantee: {void}." in made.words) == (void is not None)


def test_best_stopped_and_importance(tmp_path: Path, monkeypatch, capfd) -> None:
    best = {"round": 4, "val_accuracy": 0.75, "test_accuracy": 0.5, "checkpoint": True}
    folder = leave(tmp_path / "run", summary(best=best, stopped="it was no better"))
    lost = {"ada": 0.1, "bob": -0.1, "cyd": 0.2}
    found = {"said": "", "measure": "accuracy", "without": "mean", "round": 4, "ranked": ["cyd", "ada", "bob"],
             "parties": {name: {"drop_missing": drop} for name, drop in lost.items()}}  # fmt: skip
    (folder / "explain.json").write_text(json.dumps(found))
    made = page(monkeypatch, capfd, folder)
    assert made.cells("best") == [["best", "round 4: validation 75.00%, test 50.00%"]]
    assert "Accuracy 50% on test rows that nobody trained on. It is the model of round 4, the best of 6." in made.words
    assert "Stopped early because it was no better" in made.words and "least: cyd, ada, bob." in made.words
    assert set(re.findall(r"best: round \d|stopped", made.words)) >= {"best: round 4", "stopped"}
    (folder / "explain.html").write_text("")
    code, said = command(monkeypatch, capfd, "report", folder, "--out", tmp_path / "else" / "where.html")
    assert code == 0, said
    other = Page((tmp_path / "else" / "where.html").read_text())
    assert [href for href in hrefs(other) if not href.startswith("#")] == ["../run/explain.html"]


def test_importance_is_taken_from_explain(tmp_path: Path, monkeypatch, capfd) -> None:
    folder = leave(tmp_path / "run")
    assert "Not measured." in page(monkeypatch, capfd, folder).words
    of_party = {"norm": None, "growth": 2, "noised": 0.5, "missing": 0.25, "drop_missing": -0.1, "interval": [0, 0]}
    parties = {"ada": of_party, "cyd": of_party | {"norm": 1.25, "drop_missing": 0.5}}
    found = {"measure": "accuracy", "ranked": ["cyd", "ada"], "said": "cyd is worth most.", "parties": parties}
    (folder / "explain.json").write_text(json.dumps(found))  # as version 0.2 measured it, with zeros
    assert "Not measured." in page(monkeypatch, capfd, folder).words
    found["without"] = "mean"
    for round, status in ((5, "completed"), (6, "unfinished")):
        (folder / "explain.json").write_text(json.dumps(found | {"round": round}))
        shutil.copytree(folder, other := tmp_path / status)
        if status == "unfinished":  # the run goes on
            (other / "summary.json").unlink()
        made = page(monkeypatch, capfd, other)
        assert "Not measured." in made.words and f"it is of the model of round {round}, and the run" in made.words
        assert "cyd is worth most." not in made.words
    (folder / "explain.json").write_text(json.dumps(found | {"round": 6}))
    made = page(monkeypatch, capfd, folder)
    assert ["cyd", "50 points", "25%", "50%", "1.25", "2"] in made.rows
    assert ["ada", "-10 points", "25%", "50%", "-", "2"] in made.rows
    assert "cyd is worth most." in made.words and "least: cyd, ada." in made.words
    assert [made.cells(name)[0][2] for name in ("cyd", "ada")] == ["50 points", "-10 points"]  # of the chart


def test_the_contents_lead_to_every_section(tmp_path: Path, monkeypatch, capfd) -> None:
    made = page(monkeypatch, capfd, leave(tmp_path / "run"))
    places = [attrs["id"] for name, attrs in made.tags if name == "section"]
    assert hrefs(made) == [f"#{place}" for place in places] and len(set(places)) == len(places) >= 6


def test_a_straggler_is_seen_where_most_of_a_round_went_by_for_it(tmp_path: Path, monkeypatch, capfd) -> None:
    """Round 3 of a second each, of which three quarters were spent on bob."""
    events = json.loads(json.dumps(EVENTS))
    third = next(event for event in events if event["kind"] == "round" and event["round"] == 3)
    third["slowest"] = {"party": "bob", "seconds": 0.75}
    made = page(monkeypatch, capfd, leave(tmp_path / "run", events=events))
    assert made.cells("bob")[1][1:5] == ["1", "1", "1", "0.75 s"]
    assert made.cells("cyd")[1][1:5] == ["0", "0", "5", "0.5 s"]
    shapes = [str(attrs["d"]) for name, attrs in made.tags if name == "path" and attrs.get("class") == "awaited"]
    assert [shape.partition("v")[0] for shape in shapes] == ["M30 0h15"]  # 120 are 8 s
    assert "the others waited for it" in made.words


def test_several_runs(tmp_path: Path, monkeypatch, capfd) -> None:
    worse = summary(metrics={"test_accuracy": 0.25}, protocol="vafl")
    runs = leave(tmp_path / "a" / "run"), leave(tmp_path / "b" / "run", worse, EVENTS[:-3])
    made = page(monkeypatch, capfd, *runs)
    assert made.cells("protocol") == [["protocol", "vimadmm", "vafl"]]
    assert made.cells("test accuracy") == [["test accuracy", "92.19%", "25.00%"]] and made.cells("up")[0][1] == "6.0 kB"
    drawn = [str(attrs["data-y"]) for name, attrs in made.tags if name == "polyline"]
    assert drawn[:2] == ["50.0%;75.0%;93.8%", "50.0%;75.0%"] and len(drawn) == 4
    assert "Take a/run: accuracy 92.2% on test rows" in made.words and "no interval is known" in made.words
    assert not (runs[0] / "report.html").exists()
    elsewhere = leave(tmp_path / "other", summary(dataset="mnist"))
    other = page(monkeypatch, capfd, runs[0], elsewhere).words
    assert "tested on different rows" in other and "Take " not in other
    labelled = [leave(tmp_path / name, summary(rows_hash={"test": "same", "validation": "same"},
                                               details={"test": {"confusion": [[5, ones], [0, 9 - ones]]}}))
                for name, ones in (("before", 1), ("after", 2))]  # fmt: skip
    other = page(monkeypatch, capfd, *labelled).words
    assert "tested on rows with the same keys and other labels" in other and "Take " not in other
    vile = leave(tmp_path / "<i>&'\"")
    assert not [name for name, _ in page(monkeypatch, capfd, runs[0], vile).tags if name == "i"]


def many(rounds: int, parties: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    names = [f"party{number:03}" for number in range(parties)]
    events = [event("listening", 0, waiting_for=names), event("begin", 0, rounds=rounds, parties=names, round=0)]
    for number in range(1, rounds + 1):
        late = names[number % 2 :: 2]
        events += [event("missing", number, round=number, party=name) for name in late]
        events += [
            round_of(number),
            evaluated(number, "validation", number % 7 / 7, 1.0),
            evaluated(number, "test", 0.5, 1.0),
        ]
    said = summary(
        parties=names, rounds=rounds, missing=dict.fromkeys(names, rounds // 2), late={}, epsilon={}, bytes={}
    )
    del said["timeline"]
    return said, events


@pytest.mark.parametrize(("rounds", "parties"), [(10_000, 4), (200, 300)])
def test_a_long_run_with_many_parties_stays_small(
    tmp_path: Path, monkeypatch, capfd, rounds: int, parties: int
) -> None:
    said, events = many(rounds, parties)
    folder = leave(tmp_path / "run", said, events)
    made = page(monkeypatch, capfd, folder)
    assert (folder / "report.html").stat().st_size < 300_000
    line = made.lines("round")[0]
    assert len(line) == 160 and {y for _, y in line} >= {"0%", "85.71%"} and line[-1][0] == str(rounds)
    assert "every stretch is drawn by its lowest and its highest value" in made.words
    assert len([row for row in made.rows if row and row[0].startswith("party")]) >= parties


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "holds no run give the folder that `up`, `server` or `simulate` printed"),
        (lambda run: [file.unlink() for file in run.iterdir()], "holds no run"),
        (lambda run: [f.unlink() for f in run.iterdir()] + [(run / "ledger.jsonl").touch()], "no message left"),
        (lambda run: (run / "summary.json").write_text('{"status": '), "summary.json is torn or no summary"),
        (
            lambda run: (run / "summary.json").write_text('{"status": "completed"}'),
            "protocol: Field required",
        ),
        (
            lambda run: (run / "summary.json").write_text(json.dumps(summary(rounds="6"))),
            "rounds: Input should be a valid integer, found '6'",
        ),
        (
            lambda run: (run / "summary.json").write_text(json.dumps(summary(parties=["../x"]))),
            "'../x' is no name in a folder",
        ),
        (
            lambda run: (run / "summary.json").write_text(json.dumps(summary(details={"test": {"gains": [3]}}))),
            "details.test.gains.0: Input should be a valid dictionary, found 3",
        ),
        (
            lambda run: (run / "summary.json").write_text(json.dumps(summary(protocol="ours"))),
            "'ours' is not known here",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_inputs(spoil, message: str, tmp_path: Path, monkeypatch, capfd) -> None:
    spoil(folder := leave(tmp_path / "run"))
    code, said = command(monkeypatch, capfd, "report", folder)
    assert code == 2 and message in said, said
    assert not list(tmp_path.rglob("*.html"))


def test_path_of_the_page(tmp_path: Path, monkeypatch, capfd) -> None:
    folder, taken = leave(tmp_path / "run"), tmp_path / "taken"
    taken.write_text("")
    code, said = command(monkeypatch, capfd, "report", folder, "--out", tmp_path)
    assert code == 2 and "expected a file, this is a folder" in said
    code, said = command(monkeypatch, capfd, "report", folder, "--out", taken / "page.html")
    assert code == 4 and "taken cannot be made" in said
    code, said = command(monkeypatch, capfd, "report", folder, folder / ".." / "run")
    assert code == 2 and "is named twice" in said


def test_a_simulated_run(tmp_path: Path, monkeypatch, capfd) -> None:
    out = tmp_path / "run"
    file = write_file(tmp_path, {"name": "vimadmm", "embedding": 8, "tau": 2}, epochs=1, quorum={"deadline": 1.0})
    slow = ("--chaos", "party2: delay=5s")
    code, said = command(monkeypatch, capfd, "simulate", file, "--out", out, *slow)
    assert code == 0, said
    made, totals = page(monkeypatch, capfd, out), json.loads((out / "summary.json").read_text())
    test, chance = (totals["metrics"][f"test_{name}accuracy"] for name in ("", "baseline_"))
    expected = (
        f"Accuracy {100 * test:.3g}% on {totals['rows']['test']} test rows that nobody trained on; a model of always"
    )
    assert expected in made.words and f" has {100 * chance:.3g}%." in made.words and "simulated delays" in made.words
    rows = {name: next(row for row in made.cells(name) if len(row) == 6) for name in ("party1", "party2")}
    assert rows["party2"][1] == str(totals["missing"]["party2"]) != "0" == rows["party1"][1]
    assert {attrs.get("value") for name, attrs in made.tags if name == "input"} == {"round", "seconds", "bytes"}
    assert "bytes of tensors" in made.words and "bytes on the wire" not in made.words


@pytest.mark.processes
def test_a_run_of_real_processes(tmp_path: Path, monkeypatch, capfd) -> None:
    """While it runs, and after an interruption, from the server's files alone."""
    file, out = write_file(tmp_path, {"name": "split", "embedding": 8}, parties=2, epochs=500), tmp_path / "run"
    process = start("up", file, "--out", out, *UNHURRIED)
    wait_for_round(out, 3, process)
    assert "The run has not ended" in page(monkeypatch, capfd, out).words
    process.send_signal(signal.SIGINT)
    assert f"\nreport      colonnade report {out}\n" in finish(process)
    alone = tmp_path / "server"
    alone.mkdir()
    for name in ("summary.json", "events.jsonl", "run.json"):
        shutil.copy(out / name, alone)
    made, totals = page(monkeypatch, capfd, alone), json.loads((out / "summary.json").read_text())
    assert f"The run was interrupted after {totals['rounds']} rounds. " in made.words
    assert made.cells("torch") == [["torch", version("torch")]]


def test_a_page_is_made_again_until_the_run_is_completed(tmp_path: Path, monkeypatch) -> None:
    """Before the run, during it, after an interruption, and at its end, with the summary last."""
    folder, out = tmp_path / "run", tmp_path / "page" / "report.html"
    finished = leave(tmp_path / "finished")
    lines, said = (finished / "events.jsonl").read_text().splitlines(keepends=True), finished / "summary.json"
    interrupted = json.dumps(json.loads(lines[-1]) | {"status": "interrupted"}) + "\n"
    back, whole = json.dumps(event("listening", 5.0)) + "\n", "".join(lines[:-1])
    stages = [whole, whole + interrupted, whole + interrupted + back, whole + interrupted + back + lines[-1]]
    seen: list[str] = []

    def sleep(_: float) -> None:
        seen.append(out.read_text() if out.exists() else "")
        folder.mkdir(exist_ok=True)
        if len(seen) <= len(stages):
            (folder / "events.jsonl").write_text(stages[len(seen) - 1])
        elif len(seen) == len(stages) + 3:
            shutil.copy(said, folder)
        assert len(seen) <= len(stages) + 3, "it goes on after the end"

    monkeypatch.setattr(time, "sleep", sleep)
    follow(folder, out)
    refresh = '<meta http-equiv="refresh" content="5">'
    assert seen[0] == "" and all(refresh in made for made in seen[1:]) and len(seen) == 7
    assert refresh not in out.read_text() and "Accuracy 92.2% on test rows" in out.read_text()


@pytest.mark.parametrize("status", ["failed", "interrupted", None])
def test_an_abandoned_run_is_left_after_a_while(tmp_path: Path, monkeypatch, status: str | None) -> None:
    """A run counts as in progress while a process holds the folder, and for a while after: members are restarted."""
    folder = leave(tmp_path / "run")
    lines = (folder / "events.jsonl").read_text().splitlines(keepends=True)
    last = [] if status is None else [json.dumps(json.loads(lines[-1]) | {"status": status}) + "\n"]
    (folder / "events.jsonl").write_text("".join([*lines[:-1], *last]))
    (folder / "summary.json").unlink()
    clock = {"now": 0.0}
    held = locked_folder(None, "", resume=folder)
    held.__enter__()

    def sleep(seconds: float) -> None:
        clock["now"] += seconds
        if clock["now"] == 300:
            held.__exit__(None, None, None)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: clock["now"])
    follow(folder, None)
    assert 300 + 85 <= clock["now"] <= 300 + 100
    assert "refresh" not in (folder / "report.html").read_text()


def test_an_empty_folder_and_a_partys_own_are_reported(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    clock = iter(range(0, 10_000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with pytest.raises(EnvironmentFault, match="no run has begun in"):
        follow(tmp_path, None)
    (tmp_path / "events.jsonl").write_text(json.dumps(event("end", 1.0, party="party1", round=3)) + "\n")
    (tmp_path / "ledger.jsonl").touch()
    with pytest.raises(InputError, match="is a party's own folder"):
        follow(tmp_path, None)


def test_several_runs_are_not_followed(tmp_path: Path, monkeypatch, capfd) -> None:
    code, said = command(monkeypatch, capfd, "report", tmp_path / "a", tmp_path / "b", "--follow")
    assert code == 2 and "compare several once they have ended" in said
