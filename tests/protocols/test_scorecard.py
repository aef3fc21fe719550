"""Scorecards against pandas, OptBinning and scikit-learn on the joined table, and what they refuse."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from colonnade.cli.read.export import party_shapes, server_shapes
from colonnade.client.protocols.scorecard import local
from colonnade.client.training import card as card_bins
from colonnade.client.training.bins import Binning
from colonnade.client.training.card import EXPLAINED, Card, Evidence, optimal_bins
from colonnade.client.training.sums import OwnSums
from colonnade.common.config.members import Config
from colonnade.common.encryption.messages import OpenedSums
from colonnade.common.errors import ColonnadeError, ContractError
from colonnade.common.parsing.file import parse
from colonnade.common.protocols.scorecard import Chosen
from colonnade.common.run.state import State
from colonnade.server.protocols.scorecard import joint, serve
from colonnade.server.training.sums import ReturnedSums
from colonnade.simulation.federation import Outcome, Simulation
from tests.protocols.test_prediction import ask
from tests.support.altered_lines import change_each

ROWS = 400
CLEAR = "federation.protocol.aggregate=clear"
TABLES = {"bank": ["age", "income", "job"], "shop": ["spent", "noise"], "telco": ["plan", "calls"]}


def people() -> pd.DataFrame:
    """Columns of three parties and `late`; income has missing values, and -999 for people without one."""
    draws = np.random.default_rng(3)
    age, income = draws.integers(20, 60, ROWS), draws.gamma(4, 500, ROWS).round()
    job, plan = draws.choice(["clerk", "cook", "none"], ROWS), draws.choice(["flat", "prepaid"], ROWS, p=[0.6, 0.4])
    spent, calls = draws.normal(size=ROWS), draws.poisson(3, ROWS)
    z = (40 - age) / 12 + (2000 - income) / 1000 + (job == "none") - spent + (plan == "prepaid") - 1
    table = pd.DataFrame({
        "age": age, "income": income, "job": job, "spent": spent.round(2), "noise": draws.integers(0, 2, ROWS),
        "plan": plan, "calls": calls, "late": (z + draws.logistic(size=ROWS) > 0).astype(int),
    })  # fmt: skip
    table.loc[draws.random(ROWS) < 0.1, "income"] = np.nan
    table.loc[draws.random(ROWS) < 0.1, "income"] = -999
    return table


def config(folder: Path, *sets: str, table: pd.DataFrame | None = None, **protocol: Any) -> Config:
    made = people() if table is None else table
    for name, columns in TABLES.items():
        made[[each for each in columns if each in made]].to_csv(folder / f"{name}.csv", index=False)
    made[["late"]].to_csv(folder / "late.csv", index=False)
    csv: dict[str, Any] = {"source": "csv", "missing": "mean", "unseen": "zero"}
    return parse({
        "federation": {
            "id": "late", "parties": list(TABLES), "rounds": 30, "batch": 256, "seed": 0, "classes": 2,
            "protocol": {"name": "scorecard", "least": 8, "bins": 12, **protocol}, "evaluate": {"every": 30},
        },
        "server": {"labels": {"source": "csv", "path": "late.csv", "label": "late"}},
        "parties": {
            name: {"data": {**csv, "path": f"{name}.csv"}, "special": {"income": [-999]} if name == "bank" else {}}
            for name in TABLES
        },
    }, sets)  # fmt: skip


def run(
    folder: Path,
    *sets: str,
    more: dict[str, Any] | None = None,
    table: pd.DataFrame | None = None,
    rounds: int = 30,
    **protocol: Any,
) -> Outcome:
    cfg = config(folder, f"federation.rounds={rounds}", *sets, table=table, **protocol)
    return Simulation(cfg, base=folder, record=True, **(more or {})).run()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("whole"), more={"save": True})


def part(outcome: Outcome, name: str) -> Card:
    ctx: Any = outcome.clients[name]
    found = local(ctx, ctx.federation.protocol)
    assert isinstance(found, Card)
    return found


def cards(outcome: Outcome) -> dict[str, Any]:
    return {name: party_shapes(part(outcome, name), {})[1] for name in outcome.clients}


def warnings(outcome: Outcome, party: str) -> str:
    return "\n".join(event["reason"] for event in outcome.of_kind("warning") if event["party"] == party)


def bin_of(column: dict[str, Any], cell: Any) -> int:
    """The bin of a raw cell, by the rules on the page."""
    if pd.isna(cell):
        return int(column["missing"])
    if "words" in column:
        return int(dict(column["words"]).get(cell, column["others"]))
    special = dict(map(tuple, column["special"]))
    return int(special.get(float(cell), bisect_left(column["cuts"], float(cell))))


def binned(outcome: Outcome, table: pd.DataFrame) -> dict[str, tuple[dict[str, Any], pd.Series]]:
    """Every column's card, and the bins of a table's cells, by name."""
    return {
        column["column"]: (column, table[column["column"]].map(partial(bin_of, column)))
        for card in cards(outcome).values()
        for column in card["columns"]
    }


def test_evidence_and_information_are_those_of_pandas(whole: Outcome) -> None:
    table = people()
    train = table.iloc[whole.server.schedule.partition.train.numpy()]
    found = binned(whole, train)
    assert set(found) == set(table) - {"late"}
    for column, bins in found.values():
        counts = pd.crosstab(bins, train["late"])
        shares = counts / counts.sum()
        woe = np.log(shares[0] / shares[1])
        said = pd.DataFrame(column["bins"])
        smooth = ~said["smoothed"]
        np.testing.assert_array_equal(said["count"], counts.sum(axis=1))
        np.testing.assert_array_equal(said["bads"], counts[1])
        np.testing.assert_allclose(said["woe"][smooth], woe[smooth], rtol=1e-12)
        if smooth.all():
            np.testing.assert_allclose(column["iv"], ((shares[0] - shares[1]) * woe).sum(), rtol=1e-12)
    assert found["noise"][0]["kept"] is False and "'noise'" in warnings(whole, "shop")
    assert [each["label"] for each in found["income"][0]["bins"]][-2:] == ["missing", "-999"]


@pytest.mark.parametrize("direction", [None, 1, -1])
def test_cuts_from_sums_are_those_of_all_rows(direction: int | None) -> None:
    from optbinning import OptimalBinning  # here: every worker would import it for a second

    table = people()
    x, y = table["age"].to_numpy(float), table["late"].to_numpy()
    column = Binning.fit("age", x, None, most=64, least=1)
    fine = column.codes(x, None)
    bads, rows = np.bincount(fine, y, column.count).astype(int), np.bincount(fine, minlength=column.count)
    group = optimal_bins(column, rows - bads, bads, direction)
    trend = {None: "auto_asc_desc", 1: "ascending", -1: "descending"}[direction]
    theirs = OptimalBinning(monotonic_trend=trend).fit(x, y)
    ours = Evidence(column, group, np.bincount(group, rows - bads), np.bincount(group, bads))
    assert ours.cuts() == pytest.approx(list(theirs.splits))
    assert ours.iv == pytest.approx(theirs.binning_table.build().loc["Totals", "IV"])


def test_coefficients_are_scikit_learns_on_the_weights_of_evidence(whole: Outcome) -> None:
    table, train = people(), whole.server.schedule.partition.train.numpy()
    found = binned(whole, table)
    kept = {name: each for name, each in found.items() if each[0]["kept"]}
    x = np.stack([bins.map(pd.DataFrame(column["bins"])["woe"]) for column, bins in kept.values()], axis=1)
    theirs = LogisticRegression(tol=1e-10, max_iter=1000).fit(x[train], table["late"].to_numpy()[train])
    ours = [column["coefficient"] for column, _ in kept.values()]
    np.testing.assert_allclose(ours, theirs.coef_[0], atol=1e-3)
    assert max(ours) < 0 and whole.server.round < 30, "it converges"
    assert whole.server.metrics["test_auc"] > 0.75


def test_points_of_the_exported_cards_add_up_to_the_predicted_logits(whole: Outcome) -> None:
    table, cfg = people(), whole.server.federation.protocol
    record: dict[str, Any] = {"output": {"classes": ["0", "1"]}}
    file, server = server_shapes(joint(whole.server, cfg), cfg, record)
    scale = server["scale"]
    exact, rounded = np.full(ROWS, scale["base"]), np.full(ROWS, scale["rounded"])
    for column, bins in binned(whole, table).values():
        if column["kept"]:
            points = pd.DataFrame(column["bins"])
            exact += bins.map(points["points"])
            rounded += bins.map(points["rounded"]).astype(int)
    logits = (whole.server.state["start"] + whole.server.state["scores"])[:, 0].numpy()
    np.testing.assert_allclose((scale["offset"] - exact) / scale["factor"], logits, atol=1e-6)
    assert file == "scorecard.json" and np.abs(exact - rounded).max() <= 0.5 * (1 + len(binned(whole, table)))
    assert scale["factor"] * np.log(50) + scale["offset"] == pytest.approx(600)


def test_reasons_of_every_party_add_up_to_the_score(whole: Outcome, tmp_path: Path) -> None:
    rows, told = torch.arange(50), dict[str, list[list[str]]]()
    for name, ctx in whole.clients.items():
        ctx.explain = lambda _rows, lines, name=name: told.setdefault(name, []).extend(lines)
    ask(config(tmp_path), whole, rows)
    logits = (whole.server.state["start"] + whole.server.state["scores"])[:50, 0].numpy()
    scale = whole.server.federation.protocol.scale(float(whole.server.state["start"][0]))
    scores = np.full(50, scale["base"])
    for name in TABLES:
        for row, line in enumerate(told[name]):
            said = dict(zip(EXPLAINED, line, strict=True))
            points = [float(said[key]) for key in EXPLAINED[1:] if key.startswith(("points", "rest")) and said[key]]
            assert sum(points) == pytest.approx(float(said["points"]), abs=1e-5)
            assert all(each < 0 for each in points[:-1]) and points[:-1] == sorted(points[:-1])
            scores[row] += float(said["points"])
    np.testing.assert_allclose(scores, scale["offset"] - scale["factor"] * logits, atol=1e-2)
    assert any(line[1].startswith("income: ") for line in told["bank"])


def same(one: Outcome, other: Outcome) -> bool:
    return cards(one) == cards(other) and torch.equal(one.server.state["scores"], other.server.state["scores"])


@pytest.mark.parametrize("stopped", [1, 3])
def test_a_resumed_run_has_the_unbroken_one_s_card(whole: Outcome, tmp_path: Path, stopped: int) -> None:
    assert same(run(tmp_path, more={"start": (stopped, whole.saved[stopped])}), whole)


def test_an_encrypted_card_is_the_clear_one(whole: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: sums under encryption are exact."""
    for side in (OwnSums, ReturnedSums):
        monkeypatch.setitem(side.__init__.__kwdefaults__, "encrypted", False)
    assert same(run(tmp_path), whole)


def column(outcome: Outcome, party: str, name: str) -> dict[str, Any]:
    return next(each for each in cards(outcome)[party]["columns"] if each["column"] == name)


def test_cuts_and_directions_are_the_owner_s(tmp_path: Path) -> None:
    """And special values that few rows have are missing ones."""
    sets = (
        "parties.bank.cuts={age: [25, 40]}", "parties.bank.monotone={income: rising}",
        "parties.telco.special={calls: [0, 8, 77]}", CLEAR,
    )  # fmt: skip
    outcome = run(tmp_path, *sets, rounds=3)
    age, income, calls = (
        column(outcome, *which) for which in (("bank", "age"), ("bank", "income"), ("telco", "calls"))
    )
    assert age["cuts"] == [25, 40] and [each["label"] for each in age["bins"]][1] == "> 25 and <= 40, missing"
    rates = [each["event_rate"] for each in income["bins"][: len(income["cuts"]) + 1]]
    assert rates == sorted(rates)
    assert dict(map(tuple, calls["special"])) == {0: len(calls["bins"]) - 1, 8: calls["missing"], 77: calls["missing"]}
    said = warnings(outcome, "telco")
    assert "parties.telco.special: 77 of column 'calls' is in no training row" in said
    assert "8 of column" not in said and "0 of column" not in said  # no number is below 0, or above 8


def test_a_special_value_among_numbers_and_a_bin_of_one_class_are_named(tmp_path: Path) -> None:
    table = people()
    table.loc[(table["calls"] == 3) | (table["plan"] == "flat"), "late"] = 1
    outcome = run(tmp_path, "parties.telco.special={calls: [3]}", CLEAR, rounds=3, table=table)
    said = warnings(outcome, "telco")
    assert "3 of column 'calls' lies among its other numbers, 0 to" in said
    assert "column 'calls': no goods in the bin 3; its weight of evidence is that of 0.5 more of both" in said
    assert re.search(r"column 'plan': 6\d% of its rows are in fine bins without goods or without bads", said)
    *others, three = column(outcome, "telco", "calls")["bins"]
    goods, bads = (sum(each["count"] - each["bads"] for each in others), sum(each["bads"] for each in [*others, three]))
    assert three["smoothed"] and three["woe"] == pytest.approx(np.log(0.5 / goods / ((three["bads"] + 0.5) / bads)))


def test_the_columns_with_most_information_stay(tmp_path: Path) -> None:
    """Of parties that let it out, each of which keeps one; the others keep what reaches min_iv."""
    share = [f"parties.{name}.policy.share_iv=true" for name in ("bank", "telco")]
    outcome = run(tmp_path, *share, CLEAR, top=1, min_iv=0, rounds=3)
    kept = {name: [each["column"] for each in card["columns"] if each["kept"]] for name, card in cards(outcome).items()}
    values = {each["column"]: each["iv"] for each in cards(outcome)["bank"]["columns"]}
    assert kept == {
        "bank": [max(values, key=lambda name: values[name])],
        "shop": ["spent", "noise"],
        "telco": kept["telco"],
    }
    assert len(kept["telco"]) == 1 and "shop let no information value out" in warnings(outcome, "server")
    sent = {sender: len(m.iv) for sender, _, m in outcome.messages if type(m).__name__ == "InformationValues"}
    assert sent == {"bank": 3, "shop": 0, "telco": 2}


def test_points_of_the_wrong_sign_are_named_to_their_owner(tmp_path: Path) -> None:
    table = people()
    draws = np.random.default_rng(0)
    table["noise"] = table["spent"] + draws.normal(size=ROWS) / 3
    late = 3 * table["spent"] - 2.5 * table["noise"] + draws.logistic(size=ROWS) / 4 > 0
    outcome = run(tmp_path, CLEAR, table=table.assign(late=late.astype(int)), min_iv=0)
    said = warnings(outcome, "shop")
    assert "points fall where the share of goods rises: 'noise'" in said or "'spent'" in said, said
    wrong = [each["column"] for each in cards(outcome)["shop"]["columns"] if (each["coefficient"] or 0) > 0]
    assert wrong and all(f"'{name}'" in said for name in wrong)


def test_bads_that_are_most_rows_may_be_the_wrong_class(whole: Outcome, tmp_path: Path) -> None:
    table = people()
    other = run(tmp_path, CLEAR, rounds=2, table=table.assign(late=1 - table["late"]))
    said = [re.search(r"\d+% of the training rows are bads", warnings(each, "server")) for each in (whole, other)]
    assert sum(found is not None for found in said) == 1


def test_a_word_that_training_has_not_seen_has_a_bin(whole: Outcome) -> None:
    job = column(whole, "bank", "job")
    assert bin_of(job, "pilot") == job["others"]
    assert "other words" in job["bins"][job["others"]]["label"]


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        (("federation.classes=3",), "scorecard of 3 classes"),
        (("federation.task=regression", "federation.classes=0"), "scorecard of a number"),
        (("federation.rounds=1",), "first round of scorecard makes bins"),
        (("server.class_weights=balanced",), "count labels as they are"),
        (("server.labels.weight=age",), "all rows count alike"),
        (("federation.protocol=additive",), "it is no scorecard"),
        (("parties.bank.special={incme: [-1]}",), "column 'incme' is not in the table"),
        (("parties.bank.monotone={incme: rising}",), "column 'incme' is not in the table"),
        (("parties.bank.special={job: [-1]}",), "of words, not of numbers"),
        (("parties.bank.special={income: [-1, -1]}",), "every value once"),
        (("parties.bank.special={income: [.nan]}",), "special.income"),
        (("parties.bank.cuts={age: [40, 25]}",), "ascending numbers"),
        (("parties.bank.cuts={age: [20.5, 40]}",), r"column 'age' has \d+ training rows .* up to 20.5"),
        (("parties.bank.cuts={age: [40]}", "parties.bank.monotone={age: rising}"), "has cuts and a direction"),
        (("federation.protocol.min_iv=5",), "columns have an information value below 5: 'age'"),
    ],
)
def test_what_makes_no_card_is_refused(tmp_path: Path, sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ColonnadeError) as refused:
        run(tmp_path, CLEAR, *sets)
    assert re.search(said, str(refused.value)), refused.value


def test_before_there_are_bins_no_part_has_points(whole: Outcome) -> None:
    ctx: Any = whole.clients["shop"]
    assert not local(replace(ctx, state=State()), ctx.federation.protocol).values.any()


def test_without_optbinning_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card_bins, "find_spec", lambda _name: None)
    with pytest.raises(ColonnadeError, match="OptBinning") as refused:
        run(tmp_path, CLEAR)
    assert "colonnade[scorecards]" in str(refused.value.hint)


def altered(round: int, **fields: Any) -> Any:
    """What replaces sums of a round: others."""

    def change(item: Any) -> Any:
        if not isinstance(item, OpenedSums) or item.round != round:
            return item
        return replace(item, **{name: make(getattr(item, name)) for name, make in fields.items()})

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (altered(1, y=lambda y: y + (1 << 50)), r"OpenedSums\.y"),
        (altered(1, units=lambda units: units / 2), "counts of rows in each bin"),
        (lambda m: Chosen(m.round, m.stays * 0) if isinstance(m, Chosen) else m, r"Chosen\.stays.*one column"),
        (lambda m: Chosen(m.round, m.stays[1:]) if isinstance(m, Chosen) else m, r"Chosen\.stays"),
    ],
)
def test_a_server_that_departs_from_the_protocol_is_found(tmp_path: Path, change: Any, said: str) -> None:
    async def side(ctx: Any, clients: Any, cfg: Any) -> None:
        change_each(clients["bank"], change)
        await serve(ctx, clients, cfg)

    with pytest.raises(ContractError, match=said):
        run(tmp_path, CLEAR, "parties.bank.policy.share_iv=true", top=3, more={"instead": {"server": side}})
