"""Comparison of all protocols: the file, the runs, and their pages."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from colonnade.common.contracts.registry import CONTRACTS
from colonnade.common.errors import ConfigError, InputError
from colonnade.common.parsing.file import load
from colonnade_lab.commands.compare import compare
from colonnade_lab.comparison.pages import ComparisonPages
from colonnade_lab.comparison.plan import (
    ATTACKED,
    FILE,
    OWN,
    PLAIN,
    SLOW,
    ComparisonPlan,
    Entry,
    chosen,
    jobs,
    noisy,
    read_plan,
)
from colonnade_lab.comparison.protocol_results import ProtocolResults
from colonnade_lab.comparison.table import head, needs, row
from colonnade_lab.papers.measures import Point, RunRecord, value
from colonnade_lab.papers.results import RunOptions

pytestmark = pytest.mark.slow

PLAN = read_plan()


def record(accuracy: float, *, megabytes: float = 1.0, seconds: float = 10.0, **metrics: float) -> RunRecord:
    """A run that reaches `accuracy` in round 20 and is below 90 % before."""
    return RunRecord(
        metrics={"test_accuracy": accuracy, **metrics},
        points=(
            Point(round=10, epoch=1, seconds=seconds / 2, bytes=int(megabytes * 5e5), accuracy=accuracy / 2),
            Point(round=20, epoch=2, seconds=seconds, bytes=int(megabytes * 1e6), accuracy=accuracy),
        ),
        rounds=20,
        parties=4,
        bytes_up=int(megabytes * 6e5),
        bytes_down=int(megabytes * 4e5),
        wall=1,
    )


def results(name: str, *, reference: bool = False, **found: RunRecord) -> ProtocolResults:
    entry = Entry(set=(f"federation.protocol={name}",), late={"Embedding": "fedvs"}, way="its way", reference=reference)
    return ProtocolResults(name, entry, {condition.replace("_", "-"): [one] for condition, one in found.items()})


def _from_a_party(name: str, kind: str) -> bool:
    return (CONTRACTS[name].kinds[kind].__doc__ or "").startswith("Party to server")


class TestPlan:
    def test_every_protocol_takes_part_or_has_a_reason(self) -> None:
        assert sorted([*PLAN.protocols, *PLAN.left_out]) == sorted(CONTRACTS)

    @pytest.mark.parametrize("name", PLAN.protocols)
    def test_every_run_is_a_configuration_of_its_protocol(self, name: str) -> None:
        for condition, run in PLAN.conditions(name).items():
            federation = load(run.path, run.set).federation  # raises if a key or a value is wrong
            assert federation.protocol.name == name
            budget = (20, 1150) if condition.startswith("client") else (200, 128)
            assert (federation.rounds, federation.batch) == budget

    @pytest.mark.parametrize("name", PLAN.protocols)
    def test_stragglers_delay_messages_of_parties_in_training(self, name: str) -> None:
        kinds = set(CONTRACTS[name].kinds) - {"Evaluation"}
        assert set(PLAN.protocols[name].late) <= {kind for kind in kinds if _from_a_party(name, kind)}
        assert bool(PLAN.protocols[name].late) == bool(kinds)

    @pytest.mark.parametrize("unit", ["client", "row"])
    def test_noise_has_the_epsilon_that_it_is_named_after(self, unit: str) -> None:
        run = PLAN.conditions("split")[noisy(unit, 64)]  # type: ignore[arg-type]
        privacy = load(run.path, run.set).federation.privacy
        assert privacy is not None
        assert privacy.epsilon == 64
        assert privacy.adjacency == {"client": "participation", "row": "row"}[unit]

    def test_a_protocol_that_is_forgotten_is_named(self, tmp_path: Path) -> None:
        tree = yaml.safe_load(FILE.read_text())
        del tree["protocols"]["vafl"]
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump(tree))
        with pytest.raises(ConfigError, match="vafl"):
            read_plan(tmp_path / "plan.yaml")

    def test_an_unknown_name_names_the_nearest(self) -> None:
        with pytest.raises(InputError, match="vimadmm"):
            chosen(PLAN, ("vimadm",))

    def test_attacks_have_one_seed(self) -> None:
        found = [job for job in jobs(PLAN, ("split",), 3) if job.name == f"split/{ATTACKED}"]
        assert [job.seed for job in found] == [0]


class TestLane:
    def test_the_quicker_way_counts(self) -> None:
        one = results("split", slow=record(0.95, seconds=30), own=record(0.92, seconds=4))
        assert one.fastest == (OWN, 4)

    def test_a_way_that_never_gets_there_does_not(self) -> None:
        one = results("split", slow=record(0.95, seconds=30), own=record(0.5, seconds=4))
        assert one.fastest == (SLOW, 30)

    def test_a_cell_without_a_run_is_no_number(self) -> None:
        one = results("split", plain=record(0.95))
        assert math.isnan(one.under("row", 8))
        assert math.isnan(one.fastest[1])
        assert math.isnan(one.rebuilt)

    def test_rounds_to_a_share(self) -> None:
        assert value(record(0.95), "rounds@95") == 20
        assert value(record(0.95), "rounds@96") == math.inf


RESULTS = [
    results("split", plain=record(0.96, megabytes=8), slow=record(0.96, seconds=40), client_8=record(0.4),
         row_8=record(0.6), attacked=record(0, labels=0.9, labels_chance=0.2, rebuilt=0.4, readable=0.7)),
    results("fdml", plain=record(0.95, megabytes=2), own=record(0.91, seconds=9), client_8=record(0.7),
         attacked=record(0, labels=1.0, labels_chance=0.2, rebuilt=1.2, readable=0.2)),
    results("zoo_vfl", plain=record(0.6, megabytes=0.1), own=record(0.6, seconds=1), attacked=record(0)),
    results("centralized", reference=True, plain=record(0.99, megabytes=0.2)),
]  # fmt: skip


class TestPages:
    @pytest.mark.parametrize(
        ("need", "best"),
        [
            ("the most accurate", ["split", "fdml", "zoo_vfl"]),
            ("fewest bytes to 95 %", ["fdml", "split"]),
            ("fastest with stragglers", ["fdml", "split"]),
            ("epsilon 8 of a party's whole data", []),
            ("epsilon 8 of a row's own embeddings: no guarantee for a row", []),
            ("fewest labels named beyond chance", ["split"]),
            ("least rebuilt by the server", ["split"]),
            ("parties join at any time", ["zoo_vfl"]),
        ],
    )
    def test_needs_follow_from_the_numbers(self, need: str, best: list[str]) -> None:
        (found,) = [one for one in needs(RESULTS, [8.0]) if one.need == need]
        assert list(found.best) == best

    def test_noise_that_destroys_accuracy_names_no_protocol_but_the_best_result(self) -> None:
        found = {one.need: one for one in needs(RESULTS, [8.0])}
        rows, party = (
            found["epsilon 8 of a row's own embeddings: no guarantee for a row"],
            found["epsilon 8 of a party's whole data"],
        )
        assert (rows.take, rows.why) == ("none", "at best split 60.0 %")
        assert party.take == "none"
        assert party.why.startswith("at best split 40.0 % when evaluated without the noise;")  # fdml has the labels

    def test_accuracy_without_the_noise_names_no_protocol_for_a_whole_party(self) -> None:
        great = [results("split", plain=record(0.96), client_8=record(0.97), row_8=record(0.97))]
        found = {one.need: one.take for one in needs(great, [8.0])}
        assert found["epsilon 8 of a party's whole data"] == "none"
        assert found["epsilon 8 of a row's own embeddings: no guarantee for a row"] == "split"

    @pytest.mark.parametrize(("accuracy", "take"), [(0.899, "none"), (0.9, "vafl")])
    def test_the_floor(self, accuracy: float, take: str) -> None:
        found = needs([results("vafl", plain=record(0.96), row_8=record(accuracy))], [8.0])
        assert [
            one.take for one in found if one.need == "epsilon 8 of a row's own embeddings: no guarantee for a row"
        ] == [take]

    def test_protocols_that_share_labels_are_listed_under_no_protection(self) -> None:
        leak = record(0, labels=0.3, labels_chance=0.2, rebuilt=0.9, readable=0.2)
        every = [
            results(name, plain=record(0.99), client_8=record(0.99), row_8=record(0.99), attacked=leak)
            for name in CONTRACTS
            if CONTRACTS[name].exchange.shares_labels
        ]
        named = {one.need for one in needs(every, [8.0]) if one.best}
        assert named == {"the most accurate", "fewest bytes to 95 %", "fewest rounds to 95 %"}

    def test_every_protocol_that_shares_labels_is_listed_without_protection(self) -> None:
        leak = record(0, labels=1.0, labels_chance=0.2, rebuilt=0.9, readable=0.2)
        found = {one.need: one for one in needs([results("split", plain=record(0.96), attacked=leak)], [8.0])}
        assert found["fewest labels named beyond chance"].take == "none"
        assert found["fewest labels named beyond chance"].why == "at best split 100%, by chance 20%"

    def test_sums_only_is_stated_for_protocols_that_show_nothing_else(self) -> None:
        everyone = [results(name, plain=record(0.96)) for name in CONTRACTS]
        (found,) = [one for one in needs(everyone, []) if one.need == "the server sees sums alone"]
        assert set(found.best) == {"fedvs", "split_avg", "vimadmm_j", "additive", "hetero_lr", "scorecard"}
        assert "each party's predictions" in found.why

    def test_a_row_has_a_cell_for_every_column(self) -> None:
        cells = dict(zip(head([8.0]), row(RESULTS[1], [8.0]), strict=True))
        assert cells["MB to 95 %"] == "2.00"
        assert cells["s to 90 %, waiting"] == "-"
        assert cells["labels named (chance)"] == "100% (20%)"
        assert cells["columns rebuilt"] == "0%"  # worse than the mean row

    def test_the_pages_name_everyone_and_load_nothing(self, tmp_path: Path) -> None:
        html, markdown = ComparisonPages(PLAN, RESULTS, 1).write(tmp_path)
        for text in (html.read_text(), markdown.read_text()):
            assert all(one.name in text for one in RESULTS)
        assert not re.findall("http://(?!www.w3.org/2000/svg|www.w3.org/1999/xlink)", html.read_text())


def test_the_page_is_a_chart_first_with_one_recommendation(tmp_path: Path) -> None:
    html, _ = ComparisonPages(PLAN, RESULTS, 1).write(tmp_path)
    page = html.read_text()
    assert page.index("Take split: accuracy 96.0") < page.index('class="rows"') < page.index('class="data"')
    assert "fdml" in page and "parties get the labels" in page  # and is not recommended, with a quarter of the bytes


def test_two_protocols_on_the_virtual_clock(tmp_path: Path) -> None:
    tree = yaml.safe_load(FILE.read_text())
    short = ["federation.rounds=4", "federation.evaluate={every: 2, test: always}"]
    for name, entry in tree["protocols"].items():
        entry["set"] += short
        if name not in ("linear_admm", "centralized"):
            tree["left_out"] = {**tree.get("left_out", {}), name: "too long for a test"}
    tree["protocols"] = {
        name: entry for name, entry in tree["protocols"].items() if name in ("linear_admm", "centralized")
    }
    tree |= {"epsilons": [8], "client": [*tree["client"], "federation.rounds=2"]}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(tree))
    asked = RunOptions("", 1, tmp_path / "out", 1, plan=tmp_path / "plan.yaml")
    compare((), asked)
    kept = (tmp_path / "out" / "results.json").read_bytes()
    conditions = {"linear_admm": (PLAIN, SLOW, OWN, "client-8", ATTACKED), "centralized": (PLAIN, SLOW, ATTACKED)}
    runs = {f"beside/{name}/{condition}/0" for name, those in conditions.items() for condition in those}
    assert set(json.loads(kept)) == runs
    page = (tmp_path / "out" / "comparison.md").read_text()
    assert "\n| linear_admm | " in page
    assert "\n| centralized | " in page
    assert "`vafl` does not take part: too long for a test" in page
    assert "are in no number" not in page
    compare(("centralized",), asked)  # everything is kept, and the page has both
    assert (tmp_path / "out" / "results.json").read_bytes() == kept
    assert "\n| linear_admm | " in (tmp_path / "out" / "comparison.md").read_text()
    compare((), replace(asked, seeds=2, only_list=True))
    few = "undisturbed 1 of 2, with stragglers, waiting 1 of 2"
    assert f"Seeds that failed or were not run yet are in no number: {few}." in (
        (tmp_path / "out" / "comparison.md").read_text()
    )
    assert f"{few}, with stragglers, not waiting for all 1 of 2, the noise for epsilon 8 of a party 1 of 2." in (
        (tmp_path / "out" / "comparison-charts.html").read_text()
    )


def test_errors_in_a_plan_are_reported() -> None:
    with pytest.raises(ConfigError, match="no protocol"):
        ComparisonPlan(base="x", epsilons=(1,), client=(), row=(), attacked=(), protocols={}, left_out={"wimadmm": "?"})
