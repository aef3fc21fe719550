"""The committed pages: every number of their tables comes from results.json and the lists."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from colonnade_lab.commands.reproduce import reproduce
from colonnade_lab.comparison.plan import jobs as comparison_jobs
from colonnade_lab.comparison.plan import read_plan
from colonnade_lab.frontier.plan import read_frontier
from colonnade_lab.pages import pictures
from colonnade_lab.pages.counts import Count, count
from colonnade_lab.papers import results as results_module
from colonnade_lab.papers.measures import RunRecord
from colonnade_lab.papers.paper_comparison import TableStanding, stand
from colonnade_lab.papers.papers import Paper, PaperRun, chosen
from colonnade_lab.papers.results import Results, RunOptions, code_digest, digest_of, jobs
from colonnade_lab.papers.running import Job

COMMITTED = Path(__file__).parents[3] / "docs" / "results"
_ELSEWHERE = re.compile(r"; [^;]*, torch [^)]*\)")  # the machine that wrote a page
_ROW = re.compile(r"\|.*\| [1-9] \| ")  # a row with a number of seeds
RUN = PaperRun(file="demo.yaml", minutes=1)
RECORD = RunRecord(metrics={}, points=(), rounds=1, parties=1, bytes_up=0, bytes_down=0, wall=1, version="0.2.0")


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("dots", "bars", "orders"):
        monkeypatch.setattr(pictures, name, lambda *_: "")
    monkeypatch.setattr(pictures, "as_file", str)


def written(folder: Path) -> dict[str, str]:
    """The pages that the command writes from a folder's results."""
    reproduce(RunOptions("", 3, folder, 1, quick=False, only_list=True))
    return {path.name: path.read_text() for path in folder.glob("*.md")}


def test_the_committed_pages_are_those_of_the_committed_results(tmp_path: Path) -> None:
    shutil.copy(COMMITTED / "results.json", tmp_path)
    for name, text in written(tmp_path).items():
        committed = (COMMITTED / name).read_text()
        assert _ELSEWHERE.sub("", text) == _ELSEWHERE.sub("", committed), f"{name}: run reproduce --list"


def test_no_measured_number_stays_where_all_results_change(tmp_path: Path) -> None:
    kept = json.loads((COMMITTED / "results.json").read_text())
    for result in kept.values():
        record = result["record"]
        for point in record["points"]:
            point.update(accuracy=0.9 * point["accuracy"], bytes=2 * point["bytes"], seconds=2 * point["seconds"] + 1)
        record["metrics"] = {key: 0.9 * number for key, number in record["metrics"].items()}
        record["theorem"] = {key: 0.5 * number for key, number in record.get("theorem", {}).items()}
        record["classes"] = [0.9 * share for share in record["classes"]]
        record["bytes_up"], record["bytes_down"] = 2 * record["bytes_up"], 2 * record["bytes_down"]
    (tmp_path / "results.json").write_text(json.dumps(kept))
    for name, text in written(tmp_path).items():
        before, after = (COMMITTED / name).read_text().splitlines(), text.splitlines()
        rows = [line for line in before if _ROW.match(line) and "| never |" not in line and name != "index.md"]
        assert [line for line in rows if line in after] == []
        assert rows or name == "index.md" or "not run yet" in text
        findings = [line for line in before if re.match(r"- \[.*\(-?[0-9.]+ to ", line)]
        assert [line for line in findings if line in after] == []
        assert findings or name != "index.md"


def test_a_result_names_the_code_that_made_it_and_counts_under_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("paper", "run", RUN, 0)
    monkeypatch.setattr(results_module, "code_digest", lambda: "abc")
    Results(tmp_path).keep(job, RECORD)
    monkeypatch.setattr(results_module, "code_digest", lambda: "def")
    results = Results(tmp_path)
    results.keep(Job("paper", "run", RUN, 4), RECORD)
    assert results.get(job) == RECORD
    made = [results.made_by(Job("paper", "run", RUN, seed)) for seed in (0, 4, 1)]
    assert made == ["0.2.0, code abc", "0.2.0, code def", ""]
    assert (results.seeds("paper"), results.seeds("pap")) == (5, 0)


def test_an_older_result_has_a_version_and_no_code(tmp_path: Path) -> None:
    job = Job("paper", "run", RUN, 0)
    record = RECORD.model_dump(mode="json", exclude_none=True) | {"version": "0.1.0"}
    (tmp_path / "results.json").write_text(json.dumps({"paper/run/0": {"digest": job.digest, "record": record}}))
    assert Results(tmp_path).made_by(job) == "0.1.0"


def test_the_digest_of_code_is_of_what_it_does(tmp_path: Path) -> None:
    source = tmp_path / "server" / "one.py"
    source.parent.mkdir()

    def digest(text: str) -> str:
        source.write_text(text)
        return digest_of(tmp_path)

    first = digest("def rate():\n    return 1\n")
    assert digest('"""A note."""\n\n\ndef rate():\n    """One."""\n    return 1  # as printed\n') == first
    assert digest("def rate():\n    return 2\n") != first
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "screen.py").write_text("print()")
    assert digest("def rate():\n    return 1\n") == first
    assert re.fullmatch(r"[0-9a-f]{12}", code_digest())


def _counted() -> dict[str, Count]:
    """Counts of the committed results by page; `index` has all."""
    results, tables = Results(COMMITTED), dict[str, list[TableStanding]]()
    for name, paper in chosen(""):

        def find(run: str, seed: int, name: str = name, paper: Paper = paper) -> RunRecord | None:
            return results.get(Job(name, run, paper.runs[run], seed))

        tables[name] = stand(paper, find, max(3, results.seeds(name)))
    found = {name: count(each) for name, each in tables.items()}
    return found | {"index": count([table for each in tables.values() for table in each])}


def test_the_counts_on_every_page_are_those_of_the_records() -> None:
    for name, found in _counted().items():
        text = (COMMITTED / f"{name}.md").read_text()
        for whose, verdicts in (("papers' own", found.proposals), ("that they compare", found.others)):
            line = re.search(rf"Of (\d+) results of (?:the|methods) {whose}[^,]*, ([^.]*)\.", text)
            assert verdicts.listed == (int(line[1]) if line else 0), name
            assert line is None or line[2] == verdicts.words
        assert re.search(rf"Of {found.claims.listed} claims, {found.claims.words}", text)
        assert f"{found.excluded} cells of the papers are left out" in text


def test_no_other_page_has_counts_of_its_own() -> None:
    """Counts are printed where results are; a page that repeats one is wrong after the next run."""
    root = COMMITTED.parents[1]
    pages = [root / "README.md", *(root / "docs").rglob("*.md")]
    others = [path for path in pages if path.parent != COMMITTED]
    stated = re.compile(r"[0-9]+ (of [0-9]+ )?(results )?agree with the papers?\b|[0-9]+ (are )?better, [0-9]+ worse")
    assert [path.name for path in others if stated.search(path.read_text())] == []


def test_every_paper_has_results_of_its_own_method() -> None:
    for name, found in _counted().items():
        assert found.proposals.listed, name
        assert found.proposals["undecided"] <= found.proposals.listed


@pytest.mark.parametrize("file", ["results.json", "frontier.json"])
def test_no_stored_result_is_stale(file: str) -> None:
    """None has an epsilon of before 0.2.0, whose accounting was another; each knows its test rows, and is of a list."""
    plan = read_frontier()
    listed = [(name, paper) for name, paper in chosen("")]
    listed += [(f"quick-{name}", paper) for name, paper in chosen("", quick=True)]
    wanted = [*jobs(listed, 16), *plan.jobs(tuple(plan.sets), 3)]
    beside = read_plan()
    wanted += comparison_jobs(beside, tuple(beside.protocols), 3)
    known = {f"{job.paper}/{job.name}/{job.seed}": job.digest for job in wanted}
    for key, kept in json.loads((COMMITTED / file).read_text()).items():
        assert known.get(key) == kept["digest"], f"{key}: no list has this configuration: delete the line"
        assert kept["record"]["tested"] > 0, key
        assert "epsilon" not in kept["record"] or not kept["record"]["version"].startswith("0.1."), key
        assert not key.startswith("quick-") or not kept["record"]["version"].startswith(("0.1.", "0.2.")), key


def test_public_starts_leave_a_stored_result_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in one process draws every start from the seed."""
    text = "federation:\n  seed: 0\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(text + "  public_start: true\n")
    monkeypatch.setattr("colonnade_lab.papers.papers.EXPERIMENTS", tmp_path)
    plain, public = (Job("p", "r", PaperRun(file=f"{name}.yaml", minutes=1), 0).digest for name in "ab")
    by_set = Job("p", "r", PaperRun(file="a.yaml", set=("federation.public_start=true",), minutes=1), 0).digest
    other = Job("p", "r", PaperRun(file="a.yaml", set=("federation.batch=2",), minutes=1), 0).digest
    assert plain == public == by_set != other
