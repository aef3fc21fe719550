"""Runs of the papers' lists: measurements, kept records, and pages."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
import yaml

from colonnade.common.errors import ConfigError, EnvironmentFault, InputError
from colonnade.common.parsing.file import load
from colonnade.simulation.federation import Simulation
from colonnade_lab.commands.reproduce import reproduce
from colonnade_lab.pages import pictures
from colonnade_lab.pages.counts import count
from colonnade_lab.pages.pages import PaperPages
from colonnade_lab.papers.measures import Point, RunRecord, lower_is_better, value
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, stand
from colonnade_lab.papers.papers import Cell, Claim, Paper, PaperRun, PaperTable, chosen, read_paper
from colonnade_lab.papers.results import Results, RunOptions, about, jobs, missing, outcome_of, run_all
from colonnade_lab.papers.running import Job, perform

pytestmark = pytest.mark.slow

RECORD = RunRecord(
    metrics={"test_accuracy": 0.9, "test_auc": 0.99, "test_accuracy_party2": 0.8},
    points=(
        Point(round=1, epoch=0.5, seconds=1.0, bytes=1_000_000, accuracy=0.5),
        Point(round=2, epoch=1.0, seconds=2.5, bytes=2_000_000, accuracy=0.85),
        Point(round=4, epoch=2.0, seconds=5.0, bytes=4_000_000, accuracy=0.9),
    ),
    classes=(1.0, 0.8),
    tested=10_000,
    rounds=4,
    parties=2,
    bytes_up=3 * 2**20,
    bytes_down=2**20,
    wall=1,
)
QUICK = PaperRun(file="demo.yaml", set=("federation.epochs=1", "federation.parties=2"), minutes=0.1)


def seeds(*values: float) -> dict[int, float]:
    """A value a seed."""
    return dict(enumerate(values))


def job(seed: int = 0, run: PaperRun = QUICK) -> Job:
    return Job("paper", "run", run, seed)


class TestMeasures:
    @pytest.mark.parametrize(
        ("measure", "expected"),
        [
            ("accuracy", 90),
            ("accuracy@1", 85),
            ("accuracy@1.9", 85),
            ("auc", 99),
            ("own@party2", 80),
            ("mb@85", 2),
            ("mb@86", 4),
            ("mib@50", 1_000_000 / 2**20),
            ("seconds@85", 2.5),
            ("mib", 4),
            ("up", 3 / 8),
            ("down", 1 / 8),
            ("deviation", 10),  # of two classes
            ("mb@100epochs", 50 * 4 * 1.048576),
            ("mib@100epochs", 50 * 4),
            ("mb_up@10epochs", 5 * 3 * 1.048576),
            ("mb_down@2epochs", 1.048576),
        ],
    )
    def test_values(self, measure: str, expected: float) -> None:
        assert value(RECORD, measure) == pytest.approx(expected)

    def test_rounds_to_a_target_never_reached_are_infinite(self) -> None:
        assert value(RECORD, "mb@95") == math.inf

    def test_missing_values_are_nan(self) -> None:
        assert math.isnan(value(RECORD, "own@party9"))
        assert math.isnan(value(RECORD, "accuracy@0.1"))

    def test_an_unknown_measure_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="speed"):
            Cell(row="", column="", paper=1, run="x", measure="speed")

    @pytest.mark.parametrize(
        ("ours", "paper", "measure", "said"),
        [
            (96.2, 97.13, "accuracy", "agrees"),
            (98.13, 97.13, "accuracy", "agrees"),
            (96.1, 97.13, "accuracy", "worse"),
            (99.0, 97.13, "accuracy", "better"),
            (0.234, 0.23, "up", "agrees"),  # the paper prints two digits
            (0.25, 0.23, "up", "worse"),
            (19.6, 19.0, "mb_down@100epochs", "agrees"),  # none at all: half of one
            (19.8, 19.0, "mb_down@100epochs", "worse"),
            (9.0, 233.36, "mib@96", "better"),
            (240.0, 233.36, "mib@96", "worse"),
            (math.inf, 233.36, "mib@96", "worse"),
            (math.nan, 50.0, "accuracy", "undecided"),
            (1.01, 0.76, "deviation", "agrees"),
            (1.02, 0.76, "deviation", "worse"),
            (0.1, 0.76, "deviation", "better"),
        ],
    )
    def test_verdicts(self, ours: float, paper: float, measure: str, said: str) -> None:
        cell = Cell(row="", column="", paper=paper, run="one", measure=measure)
        assert CellStanding(cell, seeds(ours - 1e-4, ours, ours + 1e-4)).verdict == said

    def test_less_is_better_of_bytes_and_more_of_accuracy(self) -> None:
        assert lower_is_better("mb@95")
        assert not lower_is_better("accuracy@3")


class TestStanding:
    def test_the_interval_of_the_seeds_counts_and_not_their_mean(self) -> None:
        standing = CellStanding(Cell(row="", column="", paper=91.0, run="one"), seeds(90.0, 92.0))
        assert (standing.mean, standing.verdict) == (91.0, "undecided")
        assert standing.words == "91.00 (78.29 to 100.00)"

    def test_equal_seeds_and_one_seed_have_no_interval(self) -> None:
        cell = Cell(row="", column="", paper=91.0, run="one")
        assert CellStanding(cell, seeds(90.0)).words == CellStanding(cell, seeds(90.0, 90.0)).words == "90.00"

    @pytest.mark.parametrize(("spread", "said"), [(None, "95.25"), (0.21, "95.25 ± 0.21"), (0.0, "95.25 ± 0.00")])
    def test_the_papers_own_deviation_is_shown(self, spread: float | None, said: str) -> None:
        cell = Cell(row="", column="", paper=95.25, spread=spread, run="one")
        assert CellStanding(cell, {}).paper_words == said

    def test_nothing_run_has_no_verdict(self) -> None:
        paper = Paper(
            cite="",
            runs={"one": QUICK},
            tables={"t": PaperTable(title="", cells=(Cell(row="", column="", paper=1, run="one"),))},
        )
        found = count(stand(paper, lambda _run, _seed: None, 3))
        assert (found.proposals.listed, found.others) == (0, {None: 1})

    @pytest.mark.parametrize(
        ("first", "said"), [(1.0, "holds"), (2.0, "open"), (3.0, "reversed"), (math.inf, "reversed")]
    )
    def test_a_claim_asks_the_first_to_be_ahead(self, first: float, said: str) -> None:
        claim = Claim(text="", fewer={"a": "mb@90", "b": "mb@90"})
        ours = {"a": seeds(first, first, first + 0.01), "b": seeds(2.0, 2.01, 2.0)}
        assert ClaimStanding(claim, ours).outcome == said

    def test_one_seed_that_never_got_there_is_not_all_of_them(self) -> None:
        cell = Cell(row="", column="", paper=100, run="one", measure="mb@95")
        some, none = CellStanding(cell, seeds(5.0, math.inf, 6.0)), CellStanding(cell, seeds(*[math.inf] * 3))
        assert (some.words, some.verdict) == ("never in 1 of 3", "undecided")
        assert (none.words, none.verdict) == ("never", "worse")

    def test_a_number_that_no_record_has_is_not_one_that_was_never_reached(self) -> None:
        cell = Cell(row="", column="", paper=90, run="one", measure="own@party9")
        assert CellStanding(cell, seeds(math.nan)).words == "no such number"
        claim = Claim(text="", more={"a": "own@party9", "b": "accuracy"})
        standing = ClaimStanding(claim, {"a": seeds(math.nan, math.nan), "b": seeds(90.0, 90.0)})
        assert standing.outcome == "open"
        assert standing.words == "a no such number, b 90.00 %"

    def test_a_claim_states_the_number_of_seeds_of_its_means(self) -> None:
        claim = Claim(text="", fewer={"a": "mb@90", "b": "mb@90"})
        half = ClaimStanding(claim, {"a": seeds(1.0, 2.0, 3.0), "b": seeds(4.0, math.inf)})  # two seeds
        assert (half.seeds, half.words, half.outcome) == ("2 to 3", "a 2.00 MB, b never in 1 of 2", "open")
        assert ClaimStanding(claim, {"a": seeds(1.0), "b": seeds(2.0)}).seeds == "1"

    @pytest.mark.parametrize(
        ("more", "said"),
        [({"within": 1}, "holds"), ({"within": 0.5}, "not reached"), ({}, "reversed"), ({"by": 1}, "reversed")],
    )
    def test_a_claim_may_allow_a_lag_or_ask_for_a_lead(self, more: dict[str, float], said: str) -> None:
        claim = Claim(text="", more={"a": "accuracy", "b": "accuracy"}, **more)
        assert ClaimStanding(claim, {"a": seeds(90.0, 91.001), "b": seeds(90.9, 91.9)}).outcome == said


class TestResults:
    def test_kept_runs_are_not_repeated(self, tmp_path: Path) -> None:
        results = Results(tmp_path)
        results.keep(job(), RECORD)
        again = Results(tmp_path)
        assert again.get(job()) == RECORD
        assert missing([job(), job(seed=1)], again) == [job(seed=1)]

    def test_two_commands_keep_in_one_folder(self, tmp_path: Path) -> None:
        one, other = Results(tmp_path), Results(tmp_path)
        one.keep(job(seed=0), RECORD)
        other.keep(job(seed=1), RECORD)
        assert all(Results(tmp_path).get(job(seed=seed)) == RECORD for seed in range(2))

    def test_another_configuration_is_another_result(self, tmp_path: Path) -> None:
        results = Results(tmp_path)
        results.keep(job(), RECORD)
        changed = PaperRun(file="demo.yaml", set=("federation.epochs=2",), minutes=0.1)
        assert results.get(job(run=changed)) is None

    def test_a_truncated_file_gives_a_hint(self, tmp_path: Path) -> None:
        (tmp_path / "results.json").write_text('{"paper/run/0": {')
        with pytest.raises(InputError, match=r"results\.json") as wrong:
            Results(tmp_path)
        assert "--out" in wrong.value.hint

    @pytest.mark.parametrize(
        ("text", "said"),
        [("[]", "valid dictionary"), ("null", "valid dictionary"), ('{"paper/run/0": {"digest": 1}}', "paper/run/0")],
    )
    def test_a_file_of_something_else_is_refused(self, tmp_path: Path, text: str, said: str) -> None:
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(InputError, match=said):
            Results(tmp_path)

    def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_run(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "access", lambda _path, _mode: False)
        with pytest.raises(EnvironmentFault, match="cannot be written to"):
            reproduce(RunOptions("vim/table3", 1, tmp_path, 1, quick=True))
        reproduce(RunOptions("vim/table3", 1, tmp_path, 1, quick=True, only_list=True))


class TestRuns:
    def test_a_run_equals_that_of_simulate(self) -> None:
        record = perform(job(seed=3))
        outcome = Simulation(load(QUICK.path, (*QUICK.set, "federation.seed=3"))).run()
        assert record.metrics["test_accuracy"] == pytest.approx(outcome.server.metrics["test_accuracy"], abs=1e-6)
        assert record.points[-1].accuracy == record.metrics["test_accuracy"]
        assert 0 < record.bytes_up < outcome.payload[0]  # an outcome counts evaluations too

    def test_a_failed_run_reports_its_reason_and_the_others_go_on(self) -> None:
        wrong = PaperRun(file="demo.yaml", set=("federation.epochs=1", "every_party.optimiser.lr=1e30"), minutes=0.1)
        outcomes = dict(run_all([job(run=wrong), job(seed=1)], 2))
        assert "finite" in str(outcomes[job(run=wrong)])
        assert isinstance(outcomes[job(seed=1)], RunRecord)

    def test_a_fault_of_the_program_is_logged_and_printed(self, capsys: pytest.CaptureFixture[str]) -> None:
        def faulty(job: Job) -> RunRecord:
            raise KeyError(job.name)

        outcome = outcome_of(job(), faulty)
        assert "a fault of the program: KeyError" in str(outcome)
        assert "in faulty" in capsys.readouterr().err

    def test_the_shortest_run_of_the_first_seed_goes_first(self) -> None:
        paper = Paper.model_validate({
            "cite": "",
            "runs": {"long": QUICK.model_copy(update={"minutes": 9.0}), "short": QUICK},
            "tables": {"t": {"title": "", "claims": [{"text": "", "more": {"long": "accuracy", "short": "accuracy"}}]}},
        })  # fmt: skip
        order = [(each.seed, each.name) for each in jobs([("p", paper)], 2)]
        assert order == [(0, "short"), (0, "long"), (1, "short"), (1, "long")]

    @pytest.mark.parametrize(
        ("each", "processes", "said"),
        [
            ([4, 6, 6], 2, "about 8 minutes"),
            ([7], 2, "about 7 minutes"),  # one run is one process' work
            ([0.1], 1, "about 1 minute"),
            ([60, 60], 1, "about 2.0 hours"),
        ],
    )
    def test_durations_of_runs(self, each: list[float], processes: int, said: str) -> None:
        assert about([job(run=PaperRun(file="demo.yaml", minutes=one)) for one in each], processes) == said


class TestPages:
    @pytest.fixture(autouse=True)
    def plain_pictures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Real ones take half a second each: test_reproduction_pictures.py."""
        for name in ("dots", "bars", "orders"):
            monkeypatch.setattr(pictures, name, lambda *_: "<svg></svg>")

    def test_reached_and_omitted_cells_are_stated(self, tmp_path: Path) -> None:
        paper = read_paper("vim")
        standings = {"vim": stand(paper, lambda _run, _seed: RECORD, 2)}
        written = PaperPages({"vim": paper}, standings, 2).write(tmp_path)
        text = (tmp_path / "vim.md").read_text()
        assert [path.name for path in written] == ["index.md", "vim.md"]
        assert "| VIMADMM | MNIST | 97.13 % | 90.00 (87.30 to 92.70) | 2 | **worse** |" in text
        assert "left out: 2 cells, NUS-WIDE: the data set is not to be had" in text
        assert all((tmp_path / name).is_file() for name in _pictures(text))

    def test_the_command_runs_lists_and_resumes(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        asked = RunOptions("afe/table2", 1, tmp_path, 2, quick=True)
        reproduce(asked)
        first = capsys.readouterr().out
        assert "3 to be run" in first
        assert "Of 2 claims, 0 hold, 0 are reversed, 2 open." in first  # one seed decides nothing
        reproduce(asked)
        assert "all are kept" in capsys.readouterr().out
        kept = yaml.safe_load((tmp_path / "results.json").read_text())
        assert sorted(kept) == [f"quick-afe/{run}/0" for run in ("adapted", "unprotected", "vanilla")]

    def test_a_list_runs_nothing(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        reproduce(RunOptions("vim/table4", 3, tmp_path, 2, only_list=True))
        assert "not run yet" in capsys.readouterr().out
        assert not (tmp_path / "results.json").exists()

    def test_every_table_states_the_duration_of_its_missing_runs(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        ((_, paper),) = chosen("afe", quick=True)
        asked = RunOptions("afe", 1, tmp_path, 2, quick=True, only_list=True)
        reproduce(asked)
        assert "(about 1 minute to run)" in " ".join(capsys.readouterr().out.split())  # titles go over lines
        results = Results(tmp_path)
        for each in jobs([(asked.label("afe"), paper)], 1):
            results.keep(each, RECORD)
        reproduce(asked)
        assert "to run)" not in " ".join(capsys.readouterr().out.split())

    def test_a_note_and_a_deviation_of_the_paper_are_on_the_page(self, tmp_path: Path) -> None:
        cell = Cell(row="a", column="b", paper=95, digits=2, spread=0.21, run="one")
        assert "# A paper\n\nTen epochs.\n\nWritten by" in _page(tmp_path, PaperTable(title="", cells=(cell,)))
        assert "| a | b | 95.00 ± 0.21 % | 90.00 (87.30 to 92.70) | 2 | **worse** |" in (tmp_path / "p.md").read_text()

    @pytest.mark.parametrize(
        ("paper", "note", "said"), [(95, "", True), (95, "a reason", False), (90, "", False)], ids=str
    )
    def test_shortened_runs_without_a_reason_are_marked(
        self, tmp_path: Path, paper: float, note: str, said: bool
    ) -> None:
        cell = Cell(row="", column="", paper=paper, run="one")
        text = _page(tmp_path, PaperTable(title="", note=note, cells=(cell,)))
        assert ("no reason was found yet" in text) is said
        assert note in text

    @pytest.mark.parametrize(("seeds", "said"), [(1, False), (2, True)])
    def test_a_reversed_claim_without_a_reason_is_marked_and_an_open_one_is_not(
        self, tmp_path: Path, seeds: int, said: bool
    ) -> None:
        claim = Claim(text="", more={"two": "own@party2", "one": "accuracy"})
        text = _page(tmp_path, PaperTable(title="", claims=(claim,)), seeds=seeds)
        assert ("no reason was found yet" in text) is said

    @pytest.mark.parametrize(
        ("text", "by", "said"),
        [("ahead", 1, "ahead (by 1 point)"), ("ahead", 20, "ahead (by 20 points)"), ("by 4 points", 4, "by 4 points")],
    )
    def test_a_claim_states_its_lead_once(self, tmp_path: Path, text: str, by: float, said: str) -> None:
        claim = Claim(text=text, more={"one": "accuracy", "two": "own@party2"}, by=by)
        assert f"| {said} |" in _page(tmp_path, PaperTable(title="", claims=(claim,)))

    def test_the_page_states_seeds_and_rounding(self, tmp_path: Path) -> None:
        claim = Claim(text="ahead", more={"one": "accuracy", "two": "own@party2"})
        text = _page(tmp_path, PaperTable(title="", claims=(claim,)), name="figures3to5")
        assert "| ahead | one 90.00 %, two 80.00 % | +10.00 (5.51 to 14.49) points | 2 | holds |" in text
        assert "half of the last digit" in text
        assert "so is all of one seed" in text
        assert "## Figures 3 to 5: " in text

    @pytest.mark.parametrize(("seeds", "said"), [(1, False), (2, False), (3, True)])
    def test_the_total_states_the_number_with_all_seeds(self, tmp_path: Path, seeds: int, said: bool) -> None:
        cells = (Cell(row="", column="", paper=90, run="one"), Cell(row="", column="", paper=90, run="later"))
        claim = Claim(text="", more={"one": "accuracy", "other": "accuracy"})
        table = PaperTable(title="", cells=cells, claims=(claim,))
        paper = Paper(cite="", runs=dict.fromkeys(table.runs, QUICK), tables={"t": table})
        found = stand(paper, lambda run, seed: RECORD if seed < 2 and run != "later" else None, seeds)
        PaperPages({"p": paper}, {"p": found}, seeds).write(tmp_path)
        for page in ("index.md", "p.md"):
            text = (tmp_path / page).read_text()
            assert ("0 of the 2 cells and claims that were run have all 3 seeds yet, the others fewer." in text) is said
            assert ("seeds yet" in text) is said

    def test_the_total_states_what_stored_runs_took(self, tmp_path: Path) -> None:
        paper = Paper(
            cite="",
            runs={"one": QUICK},
            tables={"t": PaperTable(title="", cells=(Cell(row="", column="", paper=90, run="one"),))},
        )
        find = lambda _run, seed: RECORD.model_copy(update={"wall": 5400 * (seed + 1)}) if seed < 2 else None  # noqa: E731
        PaperPages({"p": paper}, {"p": stand(paper, find, 3)}, 3, find={"p": find}).write(tmp_path)
        for page in ("index.md", "p.md"):
            assert "The 2 stored runs took 4.5 hours of one core." in (tmp_path / page).read_text()


def _page(folder: Path, table: PaperTable, name: str = "table1", seeds: int = 2) -> str:
    """The page of a paper with this table, in which all runs have the same record."""
    paper = Paper(cite="A paper", note="Ten epochs.", runs=dict.fromkeys(table.runs, QUICK), tables={name: table})
    PaperPages({"p": paper}, {"p": stand(paper, lambda _run, _seed: RECORD, seeds)}, seeds).write(folder)
    return (folder / "p.md").read_text()


def _pictures(text: str) -> list[str]:
    return [line.partition("](")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
