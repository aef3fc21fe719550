"""`colonnade scorecard`: scores.csv of a run against its metrics and scikit-learn, its page, and wrong input."""

from __future__ import annotations

import csv
import json
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import yaml
from scipy.stats import ks_2samp
from sklearn.metrics import log_loss, roc_auc_score

from colonnade.cli.read.scorecard import bins, scorecard
from colonnade.common.errors import DataError, InputError
from colonnade.common.observability.telemetry import Event
from colonnade.common.parsing.file import parse
from colonnade.reports.card.card import write_card
from colonnade.server.member.scores import HEADER
from colonnade.simulation.folder import simulate_in
from tests.cli.read.reports import VILE, Page, leave, summary
from tests.cli.read.test_forests import tables
from tests.protocols.test_scorecard import TABLES
from tests.protocols.test_scorecard import config as card_config

BAD = f"yes {VILE}"


def configured(folder: Path, **more: Any) -> Any:
    data: dict[str, Any] = {"source": "csv", "id": "id", "missing": "mean", "unseen": "zero"}
    tables(folder, 200)
    return parse({
        "federation": {
            "id": "loans", "parties": ["shop", "bank"], "classes": 2, "rounds": 6, "batch": 64,
            "evaluate": {"every": 2}, "stop": {"patience": 8}, "rows": {"test": 0.3, "validation": 0.2}, **more,
        },
        "server": {
            "labels": {"source": "csv", "path": str(folder / "server.csv"), "id": "id", "label": "late"},
            "calibrate": "platt",
        },
        "parties": {name: {"data": {**data, "path": str(folder / f"{name}.csv")}} for name in ("shop", "bank")},
    })  # fmt: skip


@pytest.mark.parametrize("name", ["additive", "split"])
def test_a_run_keeps_the_scores_of_its_model(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    clear = {"gradients": "clear", "aggregate": "clear"}
    protocol = {"name": name, **(clear if name == "additive" else {"embedding": 4})}
    config = configured(tmp_path, protocol=protocol)
    simulate_in(config, tmp_path, run)
    before = (run / "scores.csv").read_bytes()
    for lost in ("scores.csv", "summary.json"):  # as of a server that was killed at the end
        (run / lost).unlink()
    simulate_in(config, tmp_path, run)
    assert (run / "scores.csv").read_bytes() == before
    assert stat.S_IMODE((run / "scores.csv").stat().st_mode) == 0o600
    rows, said = pandas.read_csv(run / "scores.csv", dtype={"id": str}), json.loads((run / "summary.json").read_text())
    expected = {"validation": 28, "test": 60} | ({"train": 112} if name == "additive" else {})
    assert rows.groupby("part").size().to_dict() == expected and rows["id"].is_unique
    truth = pandas.read_csv(tmp_path / "server.csv").set_index("id")["late"]
    assert (rows["class"].to_numpy() == truth.loc[rows["id"]].to_numpy()).all()
    test = rows[rows["part"] == "test"]
    bad, kept = test["class"] == "yes", said["details"]["test"]["decision"]["probabilities"]
    assert log_loss(bad, 1 / (1 + np.exp(-test["score"]))) == pytest.approx(kept["before"]["log_loss"])
    assert log_loss(bad, test["probability"]) == pytest.approx(kept["after"]["log_loss"])
    assert roc_auc_score(bad, test["score"]) > 0.75
    with pytest.raises(InputError, match=f"in {name} a party has no bins with points"):
        bins(run / "parties" / "shop", None, None)


def left(folder: Path, count: int = 200, /, **federation: Any) -> Path:
    """A server's folder with scores of people p0, p1, .., of whom the first half are training rows."""
    run = leave(folder, {**summary(), "classes": {"positive": BAD}})
    agreed = {"id": "three", "classes": ["no", BAD], **federation}
    (run / "config.yaml").write_text(yaml.safe_dump({"federation": agreed, "server": {"labels": {"key": "client"}}}))
    draw = np.random.default_rng(1)
    scores = draw.normal(size=count)
    bad = draw.random(count) < 1 / (1 + np.exp(-2 * scores))
    with (run / "scores.csv").open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(HEADER)
        for n, (score, each) in enumerate(zip(scores, bad, strict=True)):
            part = "train" if n < count // 2 else "test"
            lines.writerow([f"p{n}", part, BAD if each else "no", score, 1 / (1 + np.exp(-score))])
    return run


def shown(
    capsys: pytest.CaptureFixture[str], run: Path, cut_off: float | None = None, groups: str = "",
    scores: Path | None = None, labels: str = "",
) -> tuple[Page, str]:  # fmt: skip
    scorecard(run, cut_off, groups, scores, labels, None)
    return Page((run / "scorecard.html").read_text()), capsys.readouterr().out


def ks_of(rows: pandas.DataFrame, at: float) -> float:
    refused, bad = rows["probability"] >= at, rows["class"] == BAD
    return abs(refused[bad].mean() - refused[~bad].mean())


def test_what_was_found_of_an_earlier_model_goes_when_the_run_goes_on(tmp_path: Path) -> None:
    """A run that ends after another round than it was measured in has no finding, and no metric, of the earlier one."""
    run, more = tmp_path / "run", {"stop": "none", "protocol": {"name": "split", "embedding": 4}}
    simulate_in(configured(tmp_path, **{**more, "rounds": 2}), tmp_path, run)
    before = json.loads((run / "summary.json").read_text())
    assert before["details"] and before["absent"] and (run / "scores.csv").exists()

    def interrupt(event: Event) -> None:
        if event["kind"] == "round" and event["round"] == 5:
            assert not (run / "summary.json").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_in(configured(tmp_path, **{**more, "rounds": 8}), tmp_path, run, [interrupt])
    after = json.loads((run / "summary.json").read_text())
    assert after["status"] == "interrupted" and after["model"]["round"] > 2
    assert not after["details"] and not after["absent"] and not (run / "scores.csv").exists()
    assert not any(key.startswith("test_") for key in after["metrics"])
    assert "test_accuracy" in before["metrics"] and "val_ks" in before["metrics"] and "val_accuracy" in after["metrics"]


def test_the_page_says_what_scikit_learn_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = left(tmp_path / "run")
    made, printed = shown(capsys, run, 0.4)
    rows = pandas.read_csv(run / "scores.csv")[100:]
    bad = rows["class"] == BAD
    ks, auc = ks_2samp(rows["score"][bad], rows["score"][~bad]).statistic, roc_auc_score(bad, rows["score"])
    assert made.cells("KS")[0][1].startswith(f"{ks:.4f}, reached at ")
    fitted = pandas.read_csv(run / "scores.csv")[:100]
    places = {at: ks_of(fitted, at) for at in fitted["probability"]}
    by_itself, _ = shown(capsys, run)
    cut, where = by_itself.cells("cut-off")[0][1].split(", ")
    assert where == "where KS of the training rows is reached"
    assert float(cut) == pytest.approx(max(places, key=places.__getitem__), abs=1e-4)
    assert made.cells("Gini") == [["Gini", f"{2 * auc - 1:.4f} (AUC {auc:.4f})"]]
    approved = rows["probability"] < 0.4
    assert made.cells("approved")[0][1].startswith(f"{100 * approved.mean():.4g}% of the people")
    assert made.cells("refused")[0][1].startswith(f"{(~approved)[bad].mean():.1%} of the bads")
    assert "against the training rows" in made.cells("PSI")[0][1]
    shares = ((~approved)[bad].mean(), (~approved)[~bad].mean(), bad[approved].mean())
    refused, good, rest = (f"{share:.1%}" for share in shares)
    assert (
        f"A cut-off at 0.4000 refuses {refused} of the bads and {good} of the goods; of those approved {rest} are"
        in (made.words)
    )
    bands = [row for row in made.rows if len(row) == 8 and " to " in row[0]]
    chart = [row for row in made.rows if len(row) == 3 and " to " in row[0]]
    assert [(row[0], row[2]) for row in chart] == [(row[0], row[4]) for row in bands]
    assert (
        len(bands) == 10 and sum(int(row[1]) for row in bands) == 100 and sum(int(row[3]) for row in bands) == bad.sum()
    )
    assert "<script>alert" not in (run / "scorecard.html").read_text()
    assert f"page: {run.resolve()}" in printed.replace("\n", "")


def test_points_rise_with_safety(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """600 points are odds of 50 goods a bad, and 20 more double them."""
    run = left(tmp_path / "run", protocol={"name": "scorecard", "pdo": 20.0, "points": 600.0, "odds": 50.0})
    made, _ = shown(capsys, run, 500.0)
    scores = pandas.read_csv(run / "scores.csv")["score"][100:]
    points = 600 + 20 * np.log2(np.exp(-scores) / 50)
    assert made.cells("cut-off")[0][1] == "500, as given"
    assert made.cells("approved")[0][1].startswith(f"{100 * (points >= 500).mean():.4g}% of the people")
    first = next(row for row in made.rows if len(row) == 8 and " to " in row[0])
    assert first[0].startswith(f"{points.min():.0f} to ")
    with pytest.raises(InputError, match=r"--cut-off 0\.4: the points of these rows lie between 4"):
        shown(capsys, run, 0.4)


def test_groups_and_what_is_not_shown_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, file = left(tmp_path / "run"), tmp_path / "groups.csv"
    names = ["north"] * 40 + ["south"] * 35 + ["east"] * 20
    file.write_text("client;region\n" + "".join(f"p{100 + n};{name}\n" for n, name in enumerate(names)) + "p7;west\n")
    made, said = shown(capsys, run, 0.5, f"{file}:region")
    rows = pandas.read_csv(run / "scores.csv")[100:140]
    bad, refused = rows["class"] == BAD, rows["probability"] >= 0.5
    (north,) = (row for row in made.cells("north") if len(row) == 8)
    (drawn,) = (row for row in made.rows if row[:1] == ["north"] and len(row) == 3)
    assert drawn[2] == f"{1 - refused.mean():.1%}"
    assert north[1:4] == ["40", f"{bad.mean():.1%}", f"{1 - refused.mean():.1%}"]
    assert north[5:] == [f"{refused[bad].mean():.1%}", f"{refused[~bad].mean():.1%}",
                         f"{roc_auc_score(bad, rows['score']):.3f}"]  # fmt: skip
    for text in (made.words, said.replace("\n", " ")):
        assert "Not shown, of fewer than 30 people: (none), east." in text  # 25 people, with south 60
        assert "could be computed from it and the totals: south." in text
        assert "rows without a group in" in text and "1 id of" in text
    assert not made.cells("south") and not made.cells("east")
    card = write_card(run, None, f"{file}:region").markdown.read_text()
    assert (
        f"| {' | '.join(north[:3])} | " in card
        and "Not shown, of fewer than 30 people" in card
        and "| south |" not in card
    )
    assert "| north |" not in write_card(run).markdown.read_text()


def test_a_file_of_predictions_takes_the_place_of_the_runs_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rows = left(tmp_path / "run"), pandas.read_csv(tmp_path / "run/scores.csv")[100:]
    expected = shown(capsys, run)[0].cells("Gini")
    (run / "scores.csv").unlink()
    with pytest.raises(InputError, match="keeps no scores") as refused:
        shown(capsys, run)
    assert "--scores predictions.csv --labels" in refused.value.hint
    predicted, labels = tmp_path / "predictions.csv", tmp_path / "labels.csv"
    made = pandas.DataFrame({"id": rows["id"], "class": "no", "p_no": 1 - rows["probability"]})
    made[f"p_{BAD}"] = rows["probability"]
    made.to_csv(predicted, index=False)
    predicted.write_text(predicted.read_text() + "p999,,,\n")  # unknown to a member
    rows.rename(columns={"id": "client"}).to_csv(labels, index=False)
    read, printed = shown(capsys, run, scores=predicted, labels=f"{labels}:class")
    assert read.cells("Gini") == expected and not read.cells("model")
    assert f"1 id of {predicted} without a prediction" in read.cells("left out")[0][1] and "left out" in printed
    once = predicted.read_text()
    predicted.write_text(once + "p100,no,.9,.1\n")
    with pytest.raises(InputError, match=rf"predictions\.csv, line {len(rows) + 3}: the id 'p100' occurs twice"):
        shown(capsys, run, scores=predicted, labels=f"{labels}:class")
    predicted.write_text(once)
    with pytest.raises(InputError, match="the classes of its ids are needed too"):
        shown(capsys, run, scores=predicted)
    rows.assign(**{"class": "perhaps"}).to_csv(labels, index=False)
    with pytest.raises(InputError, match=r"predictions\.csv, line 2: id 'p100': its label in .* is 'perhaps'"):
        shown(capsys, run, scores=predicted, labels=f"{labels}:class")


def test_wrong_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(match: str, run: Path, **given: Any) -> None:
        with pytest.raises(InputError, match=match) as error:
            shown(capsys, run, **given)
        assert error.value.hint and not (run / "scorecard.html").exists()

    run, file = left(tmp_path / "run"), tmp_path / "groups.csv"
    refused(r"--cut-off 1\.5: the probabilities of these rows lie between 0\.", run, cut_off=1.5)
    refused("expected FILE:COLUMN", run, groups="groups.csv")
    refused(r"groups\.csv cannot be read: No such file", run, groups=f"{file}:region")
    file.write_text("client,region\nq1,north\n")
    refused("none of its ids is among the 100 rows", run, groups=f"{file}:region")
    refused("has no column 'regoin'", run, groups=f"{file}:regoin")
    file.write_text("client,region\np150,north\np150,south\n")
    refused(r"groups\.csv, line 3: the id 'p150' occurs twice", run, groups=f"{file}:region")
    file.write_text("person,region\np150,north\n")
    refused("has no column 'id'", run, groups=f"{file}:region")
    text = (run / "scores.csv").read_text()
    rows = pandas.read_csv(run / "scores.csv")
    for change, match in (
        ({"class": "no"}, "all 100 test rows lack the class 'yes"),
        ({"score": 0.5, "probability": 0.6}, "all 100 test rows have the same score, 0.6"),
        ({"probability": 2.0}, r"scores\.csv, line 2: probability is '2\.0'"),
        ({"score": "high"}, r"scores\.csv, line 2: score is 'high'"),
        ({"part": "train"}, "keeps no scores of test or validation rows"),
        ({"class": None}, "the classes of the test rows are not known"),
    ):
        rows.assign(**change).to_csv(run / "scores.csv", index=False)
        refused(match, run)
    (run / "scores.csv").write_text(text + "p1,test\n")
    refused(r"scores\.csv, line 202: 2 values for the 5 columns", run)
    refused("the run has 10 classes", left(tmp_path / "many", classes=10))
    refused("the run predicts numbers", left(tmp_path / "numbers", task="regression"))
    party = tmp_path / "run/parties/ada"
    party.mkdir(parents=True)
    (party / "ledger.jsonl").write_text("{}\n")
    refused("is a party's own folder: scores are the server's", party)
    refused("holds no run", tmp_path / "nothing")


def test_a_partys_bins_are_those_of_pandas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Counts, WOE and IV from the raw columns, by the rules on the page; PSI from the test rows. Rows are aligned."""
    run, clear = tmp_path / "run", ("federation.protocol.aggregate=clear", "federation.rounds=6")
    aligned = ("federation.align=sorted", "server.labels.key=id")  # as text, in which 10 is before 2
    config = card_config(tmp_path, *clear, *aligned, *(f"parties.{name}.data.key=id" for name in TABLES))
    for path in tmp_path.glob("*.csv"):
        pandas.read_csv(path).rename_axis("id").to_csv(path)
    run.mkdir()
    simulate_in(config, tmp_path, run)
    bins(run / "parties" / "shop", None, None)
    said, made = capsys.readouterr().out, Page((run / "parties/shop/bins.html").read_text())
    scores = pandas.read_csv(run / "scores.csv").set_index("id")
    spent, late = pandas.read_csv(tmp_path / "shop.csv")["spent"], pandas.read_csv(tmp_path / "late.csv")["late"]
    train, test = (scores.index[scores["part"] == part] for part in ("train", "test"))
    (drawn, about) = made.cells("spent")
    assert "spent separates best" in made.words and float(drawn[2]) == pytest.approx(float(about[1]), abs=6e-4)
    first, second = (at for at, row in enumerate(made.rows) if row[0] == "bin")  # spent, of the larger IV, and noise
    labels = [row[0] for row in made.rows[first + 1 : second]]
    cuts = [float(re.findall("<= ([-0-9.]+)", label)[0]) for label in labels[:-1]]
    place = np.searchsorted(cuts, spent, side="left")
    iv, shares = 0.0, []
    for number in range(len(labels)):
        here, row = place[train] == number, made.rows[first + 1 + number]
        bads, goods = late[train][here].sum(), (1 - late[train][here]).sum()
        share = goods / (1 - late[train]).sum(), bads / late[train].sum()
        assert row[1:5] == [str(here.sum()), f"{here.mean():.1%}", str(bads), f"{bads / here.sum():.1%}"]
        assert float(row[5]) == pytest.approx(np.log(share[0] / share[1]), abs=6e-4)
        iv += (share[0] - share[1]) * np.log(share[0] / share[1])
        shares.append((here.sum() + 0.5, (place[test] == number).sum() + 0.5))
        assert len([line for line in said.splitlines() if re.search(f" {row[1]} .* {row[5]} ", line)]) == 1
    assert float(about[1]) == pytest.approx(iv, abs=6e-5) and int(about[2]) == len(labels)
    p, q = (np.array(each) / sum(each) for each in zip(*shares, strict=True))
    assert float(about[6]) == pytest.approx(((q - p) * np.log(q / p)).sum(), abs=6e-5)
    assert "noise" in made.words and "left out" in made.words
    with pytest.raises(InputError, match="is no folder of a party in a run"):
        bins(run, None, None)
    (tmp_path / "shop.csv").write_text((tmp_path / "shop.csv").read_text() + "1000,0.5,1\n")
    with pytest.raises(DataError, match="shop: the keys of its table, or their order, have changed"):
        bins(run / "parties" / "shop", None, None)
