"""The bench is complete, saved as it runs, and not lost if one benchmark fails; scaling curves count every byte."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest

import benchmarks
from benchmarks.__main__ import BENCHMARKS, Benchmark, Kept, main, run
from benchmarks.report import HEADINGS, Figure, Result, describe, in_turn, markdown, processor, rows
from benchmarks.runs import ROOT
from benchmarks.scaling import COLUMNS, SWEEPS, TRAINING, Point, Setting, point_of, sketch, table, write
from benchmarks.shares import REST, codec, place_of

KEPT, BROKEN = Figure("quick", 1.0, 2.0, "ms", 1.0, "a floor"), Figure("slow", 3.0, 2.0, "ms", 1.0, "a floor")


class Counted:
    """A benchmark that knows how often it ran."""

    def __init__(self, *figures: Figure, fails: Exception | SystemExit | None = None) -> None:
        self.figures, self.fails, self.runs = figures, fails, 0

    def __call__(self) -> list[Figure]:
        self.runs += 1
        if self.fails is not None:
            raise self.fails
        return list(self.figures)


def registry(**calls: Counted) -> dict[str, Benchmark]:
    return {name: Benchmark(call, 0.1) for name, call in calls.items()}


def test_every_module_is_a_benchmark_a_command_or_a_part_of_others() -> None:
    texts = {path.stem: path.read_text() for path in Path(benchmarks.__file__).parent.glob("*.py")}
    run_by_us = {benchmark.call.__module__.rpartition(".")[2] for benchmark in BENCHMARKS.values()}
    for name in texts.keys() - run_by_us - {"__init__", "__main__"}:
        others = "".join(text for each, text in texts.items() if each != name)
        imported = re.search(rf"from benchmarks\.{name} import|from benchmarks import .*\b{name}\b", others)
        assert imported or f"python -m benchmarks.{name}" in texts[name], name


def reached(call: Callable[..., object], seen: set[object]) -> str:
    """Source of a function, and of everything in its module that it names."""
    seen.add(call)
    names, found = set(re.findall(r"\w+", inspect.getsource(call))), [inspect.getsource(call)]
    for name in names & call.__globals__.keys():
        other = call.__globals__[name]
        if inspect.isfunction(other) and other.__module__ == call.__module__ and other not in seen:
            found.append(reached(other, seen))
        elif isinstance(other, str | tuple | dict):
            found.append(repr(other))
    return "\n".join(found)


def test_benchmarks_on_experiments_name_their_data_sets() -> None:
    for name, benchmark in BENCHMARKS.items():
        text = reached(benchmark.call, set())
        if ("mnist" in text and ".yaml" in text) or "table4.yaml" in text:
            assert "mnist" in benchmark.sets, name
        if "fashion" in text and ".yaml" in text:
            assert "fashion-mnist" in benchmark.sets, name


def test_what_is_measured_in_turn() -> None:
    calls, now = [], iter(range(100))
    spent = in_turn(lambda: calls.append("a"), lambda: calls.append("b"), clock=lambda: next(now), repeats=2, warm=1)
    assert calls == ["a", "b"] * 3 and spent == [[1, 1], [1, 1]]


def test_the_page_lists_every_benchmark() -> None:
    page = (ROOT / "docs" / "performance.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(listed) == sorted(BENCHMARKS)


@pytest.mark.parametrize(
    ("figure", "value", "holds"),
    [
        (Figure("a", 3.0, 2.0, "s", 2.0, "b"), 1.5, True),
        (Figure("a", 3.0, 2.0, "s"), 3.0, False),
        (Figure("a", 3.0, 1.6, "s", 2.0, "b", least=True), 1.5, False),
        (Figure("a", 3.0, None, "s"), 3.0, True),
        (Figure("a", math.inf, 15.0, "MiB"), math.inf, False),
    ],
)
def test_a_figure_holds_its_ratio_or_itself_against_the_bound(figure: Figure, value: float, holds: bool) -> None:
    assert (figure.value, figure.holds) == (value, holds)


def test_no_number_keeps_no_bound() -> None:
    assert not Figure("a", math.nan, 2.0, "s").holds
    assert not Figure("a", math.nan, 2.0, "s", least=True).holds


def test_a_line_names_both_quantities_with_units() -> None:
    lines = list(rows({"one": Result((KEPT, BROKEN)), "two": Result(failed="X: no"), "three": Result(skipped="why")}))
    assert all(len(line) == len(HEADINGS) for line in lines)
    assert lines[0] == ("one", "quick", "1 ms", "1 ms, a floor", "1", "<= 2", "yes")
    assert lines[1][-1] == "NO"
    assert lines[2][1] == "failed: X: no" and lines[2][-1] == "NO"
    assert lines[3][1] == "skipped: why" and lines[3][-1] == ""


def test_markdown_has_the_machine_above_and_no_cell_breaks_it() -> None:
    text = markdown({"one": Result((Figure("a|b", 1.0, None, "s"),))}, "a machine")
    first, _, *table = text.splitlines()
    assert first == "a machine." and len(table) == 3
    assert {line.count("|") for line in table} == {len(HEADINGS) + 1}


def test_one_that_fails_does_not_lose_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for fails in (RuntimeError("it broke"), SystemExit("a run failed")):
        last = Counted(KEPT)
        assert main(["--markdown"], registry(first=Counted(fails=fails), last=last)) == 1
        out = capsys.readouterr().out
        assert last.runs == 1 and "| quick |" in out and f"failed: {type(fails).__name__}: {fails}" in out


@pytest.mark.parametrize(("figures", "code"), [((KEPT,), 0), ((KEPT, BROKEN), 1)])
def test_a_broken_bound_is_an_exit_code(figures: tuple[Figure, ...], code: int) -> None:
    assert main([], registry(only=Counted(*figures))) == code


def test_a_bench_that_was_stopped_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    first, second, last = Counted(KEPT), Counted(fails=KeyboardInterrupt()), Counted(BROKEN)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        main(["--out", str(file)], registry(first=first, second=second, last=last))
    second.fails = RuntimeError("once")
    assert main(["--out", str(file), "--resume"], registry(first=first, second=second, last=last)) == 1
    assert (first.runs, second.runs, last.runs) == (1, 2, 1)
    second.fails = None
    assert main(["--out", str(file), "--resume"], registry(first=first, second=second, last=last)) == 1  # BROKEN
    assert (first.runs, second.runs, last.runs) == (1, 3, 1)
    kept = Kept(file, describe())
    kept.read()
    assert kept.results["first"].figures == (KEPT,) and kept.results["last"].figures == (BROKEN,)


def test_kept_results_are_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "bench.json").write_text("{}")
    with pytest.raises(SystemExit):
        main(["--out", str(file)], registry(only=Counted(KEPT)))
    assert "is there already" in capsys.readouterr().err and file.read_text() == "{}"


@pytest.mark.parametrize("argv", [["--resume"], ["nothing"]])
def test_wrong_command_lines_are_refused(argv: list[str]) -> None:
    only = Counted(KEPT)
    with pytest.raises(SystemExit) as refused:
        main(argv, registry(only=only))
    assert refused.value.code == 2 and not only.runs


@pytest.mark.parametrize("content", ["{", "[]", '{"machine": "m"}', '{"machine": "m", "results": {"a": {"x": 1}}}'])
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, content: str) -> None:
    (file := tmp_path / "bench.json").write_text(content)
    with pytest.raises(SystemExit, match="no results of a bench"):
        Kept(file, "m").read()


def test_results_of_another_machine_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "bench.json"
    Kept(file, "theirs").add("one", Result((KEPT,)))
    assert json.loads(file.read_text())["machine"] == "theirs"
    with pytest.raises(SystemExit, match="taken on theirs"):
        Kept(file, "ours").read()


def test_a_benchmark_without_its_data_set_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    monkeypatch.setattr("colonnade.common.data.known_sets.catalogue.cache", lambda: tmp_path / "cache")
    call = Counted(KEPT)
    result = run(Benchmark(call, 1, ("mnist",)))
    assert "mnist is not here" in result.skipped and result.holds and not call.runs


def test_list_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    only = Counted(KEPT)
    only.__name__ = "only"  # type: ignore[attr-defined]
    assert main(["--list"], registry(only=only)) == 0
    assert "0.1 min" in capsys.readouterr().out and not only.runs


def test_the_processor_has_the_systems_name(tmp_path: Path) -> None:
    (cpuinfo := tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: A Processor\nmodel name\t: A Processor\n"
    )
    assert processor(cpuinfo) == "A Processor"
    cpuinfo.write_text("")
    assert processor(cpuinfo) and processor(cpuinfo) != "A Processor"
    assert all(word in describe() for word in ("cores", "GiB", "Python", "torch"))


@pytest.fixture(scope="module")
def columns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    write(folder := tmp_path_factory.mktemp("columns"), training=512)
    return folder


@pytest.mark.parametrize("parties", [2, 3])
def test_split_sends_an_embedding_and_a_gradient_a_party(columns: Path, parties: int) -> None:
    point = point_of(Setting("split", parties, batch=64, width=8, hidden=16), columns)
    assert point.megabytes == pytest.approx(parties * 2 * 64 * 8 * 4 / 1e6)
    assert point.seconds > 0 and point.floor > 0


@pytest.mark.parametrize("parties", [2, 3, 100])
def test_all_columns_are_shared(parties: int) -> None:
    shares = Setting("split", parties).shares()
    assert len(shares) == parties and sum(shares) == COLUMNS and max(shares) - min(shares) <= 1


def test_every_setting_is_a_federation_without_a_ragged_batch() -> None:
    for sweep in SWEEPS:
        assert list(sweep.values) == sorted(set(sweep.values))
        for setting in sweep.settings():
            assert len(setting.config(6).federation.names) == setting.parties
            assert TRAINING % setting.batch == 0


@pytest.mark.parametrize("sweep", SWEEPS, ids=lambda sweep: sweep.key)
def test_a_picture_has_every_point_of_every_curve(sweep) -> None:
    points = [Point(setting, 0.01 * n, 0.005 * n, 1.0) for n, setting in enumerate(sweep.settings(), 1)]
    groups = [e for e in ET.fromstring(sketch(sweep, points)).iter() if e.tag.endswith("}g")]
    dots = [sum(e.tag.endswith("}use") for e in group) for group in groups]
    assert dots.count(len(sweep.values)) == 2 * len(sweep.protocols)
    assert len(table(sweep, points).splitlines()) == 2 + len(points)


def test_a_frame_lies_where_the_innermost_that_says_it_does(columns: Path) -> None:
    assert place_of(sys._getframe()) == REST
    assert place_of(None) == REST
    for file, place in (
        ("/x/common/models/losses.py", "models and numerics"),
        ("/x/common/crypto/sealing.py", "crypto"),
    ):
        scope: dict[str, object] = {"look": lambda: place_of(sys._getframe())}
        exec(compile("found = look()", file, "exec"), scope)
        assert scope["found"] == place


def test_a_rounds_messages_pass_the_codec(columns: Path) -> None:
    assert codec(Setting("split", 2, batch=64, width=8, hidden=16), columns) > 0
    assert codec(Setting("fedvs", 4, batch=64, width=8), columns) > 0
