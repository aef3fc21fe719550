"""Pictures of tables: marks for cells and claims, and their places."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from colonnade_lab.pages import pictures as drawings
from colonnade_lab.pages.pictures import FILLS, Picture, limits, pictures
from colonnade_lab.papers.intervals import Value
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding
from colonnade_lab.papers.papers import Cell, Claim, PaperTable

pytestmark = pytest.mark.slow

_SVG = "{http://www.w3.org/2000/svg}"
_NARROW = 2.6  # pixels of a letter, at least


def cell(ours: tuple[float, ...], paper: float = 90, measure: str = "accuracy", **more: object) -> CellStanding:
    return CellStanding(
        Cell(row="ours", column="MNIST", paper=paper, run="one", measure=measure, **more), dict(enumerate(ours))
    )  # type: ignore[arg-type]


def claim(values: dict[str, float], measure: str = "accuracy", way: str = "more", text: str = "ahead") -> ClaimStanding:
    """Records of three equal seeds each, whose deviation is at least .01; NaN stands for a run that did not happen."""
    ours = {
        run: {} if math.isnan(value) else {seed: Value.of(value, 0.01) for seed in range(3)}
        for run, value in values.items()
    }
    return ClaimStanding(Claim.model_validate({"text": text, way: dict.fromkeys(values, measure)}), ours)


def drawn(cells: tuple[CellStanding, ...] = (), claims: tuple[ClaimStanding, ...] = ()) -> list[Picture]:
    return list(pictures("p", TableStanding("table1", PaperTable(title="A <title>"), cells, claims)))


@pytest.fixture
def axes(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Drawn values of cells or claims, in their own units."""
    figures: list[Figure] = []

    def keep(size: tuple[int, int], paint: Any, **_: str) -> str:
        figures.append(Figure(layout="constrained"))
        paint(figures[-1])
        return ""

    monkeypatch.setattr(drawings, "picture", keep)

    def of(*, cells: tuple[CellStanding, ...] = (), claims: tuple[ClaimStanding, ...] = ()) -> list[Axes]:
        monkeypatch.setattr(drawings, "as_file", str)
        (_,) = drawn(cells, claims)
        return figures[-1].axes

    return of


def bars_of(axes: Axes) -> list[tuple[str, float]]:
    """Colour and right end of every bar."""
    return [(_hex(bar.get_facecolor()), bar.get_x() + bar.get_width()) for bar in axes.patches]


def dots_of(axes: Axes) -> list[tuple[str, float]]:
    """Colour, or none, and place of every dot."""
    return [(line.get_markerfacecolor(), float(line.get_xdata()[0])) for line in axes.lines]


def texts(axes: Axes) -> set[str]:
    titles = [axes.get_title(loc) for loc in ("left", "center", "right")]
    return {*titles, *(each.get_text() for each in (*axes.texts, *axes.get_yticklabels()))}


def _hex(colour: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour[:3])


class TestLimits:
    @given(
        st.lists(st.floats(1e-3, 1e9) | st.just(math.inf), min_size=2, max_size=8),
        st.sampled_from(["MB", "MiB", "s", ""]),
    )
    def test_are_powers_of_ten_around_the_values(self, values: list[float], unit: str) -> None:
        low, high = limits(values, unit)
        assert all(low < value <= high * (1 + 1e-9) for value in values if math.isfinite(value))
        decades = math.log10(high / low)
        assert decades == pytest.approx(max(1, round(decades)))

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
    def test_per_cent_ends_at_a_hundred(self, values: list[float]) -> None:
        low, high = limits(values, "%")
        assert 0 <= low <= min(values)
        assert (low <= 95, high) == (True, 100)

    @pytest.mark.parametrize("values", [[], [math.inf], [math.nan], [0.0]])
    def test_no_value_to_go_by_has_limits_all_the_same(self, values: list[float]) -> None:
        low, high = limits(values, "MB")
        assert 0 < low < high < math.inf


class TestPictures:
    def test_every_kind_of_cell_and_the_claims_have_one(self) -> None:
        cells = (cell((90.0,)), cell((5.0,), measure="mb@95"), cell((5.0,), measure="up"), cell((1.0,), measure="mib"))
        found = drawn((*cells, cell((1.0,), measure="deviation")), (claim({"a": 1, "b": 2}),))
        assert [(each.file, each.about) for each in found] == [
            ("p-table1.svg", ""),
            ("p-table1-mb.svg", ", in MB"),
            ("p-table1-mib.svg", ", in MiB"),
            ("p-table1-claims.svg", ", what it says"),
        ]

    def test_cells_without_runs_are_not_drawn(self) -> None:
        waiting = claim({"a": math.nan, "b": math.nan})
        assert drawn((cell(()), cell((), measure="mb")), (waiting,)) == []

    def test_titles_and_descriptions_say_it_all(self) -> None:
        found = drawn((cell((90.0,), spread=0.5), cell((5.0,), measure="mb@95")), (claim({"a": 91, "b": 90}),))
        trees = [ElementTree.fromstring(each.text) for each in found]
        assert [tree.attrib["role"] for tree in trees] == ["img"] * 3
        assert all("A <title>" in tree.findtext(f"{_SVG}title", "") for tree in trees)
        assert [tree.findtext(f"{_SVG}desc") for tree in trees] == [
            "ours, MNIST: the paper 90 ± 0.5, ours 90.00",
            "ours, MNIST: the paper 90, ours 5.00",
            "ahead: a 91.00 %, b 90.00 %, holds",
        ]

    def test_deviations_are_lines_as_wide_as_they(self, axes: Any) -> None:
        (with_it,) = axes(cells=(cell((89.0, 91.0), paper=95, spread=1.0),))
        lines = [line.get_segments()[0][:, 0].tolist() for line in with_it.collections]
        assert lines == [pytest.approx([90 - 12.706205, 90 + 12.706205]), pytest.approx([94, 96])]
        (without,) = axes(cells=(cell((90.0,), paper=95),))
        assert not list(without.collections)

    def test_equal_values_make_equal_bytes(self) -> None:
        first, second = (
            [each.text for each in drawn((cell((90.0,)), cell((5.0,), measure="mb")), (claim({"a": 1, "b": 2}),))]
            for _ in range(2)
        )
        assert first == second
        assert "<metadata" not in first[0]  # which has the date

    def test_a_file_is_light_or_dark_as_the_screen_is(self) -> None:
        (picture,) = drawn((cell((90.0,)),))
        inks = re.findall(r"svg{color:(#\w+);background:(#\w+)}", picture.text)
        assert inks == [("#222", "#fff"), ("#e4e7ea", "#15181c")]
        written = list(ElementTree.fromstring(picture.text).iter(f"{_SVG}text"))
        assert len(written) > 3
        assert all("fill: currentColor" in each.attrib["style"] for each in written)


class TestBars:
    def test_are_the_papers_and_ours_in_powers_of_ten(self, axes: Any) -> None:
        few = partial(cell, measure="mb@95")
        (found,) = axes(cells=(few((10.0, 10.1, 9.9), paper=1000), few((100.0, 101.0, 99.0), paper=10)))
        (_, paper), (blue, ours), (_, other), (red, short) = bars_of(found)
        assert (blue, red) == (FILLS["better"], FILLS["worse"])
        assert [paper, ours, other, short] == pytest.approx([1000, 10, 10, 100])
        assert (found.get_xscale(), found.get_xlim()) == ("log", (1, 1000))  # the shortest bar is seen
        assert found.xaxis.get_major_formatter()(10) == "10 MB"

    def test_never_goes_to_the_right_edge(self, axes: Any) -> None:
        (found,) = axes(cells=(cell((math.inf,) * 3, paper=50, measure="mib@95"),))
        (_, paper), (colour, ours) = bars_of(found)
        assert colour == FILLS["worse"]
        assert paper < ours == found.get_xlim()[1]
        assert "never" in texts(found)


class TestOrders:
    def test_the_first_run_is_marked(self, axes: Any) -> None:
        first, second = axes(claims=(claim({"a": 91.0, "b": 90.0, "c": 80.0}), claim({"a": 70.0, "b": 90.0})))
        assert [fill for fill, _ in dots_of(first)] == [FILLS["holds"], "none", "none"]
        assert [fill for fill, _ in dots_of(second)] == [FILLS["reversed"], "none"]
        assert {"holds", "91.00 %", "a"} <= texts(first)
        assert {"reversed", "70.00 %"} <= texts(second)

    def test_never_stands_at_the_right_edge(self, axes: Any) -> None:
        (found,) = axes(claims=(claim({"a": 5.0, "b": math.inf}, "seconds@80", "fewer"),))
        (_, first), (_, never) = dots_of(found)
        assert first < never == found.get_xlim()[1]
        assert {"5.00 s", "never"} <= texts(found)

    def test_a_run_that_waits_is_named_and_has_no_dot(self, axes: Any) -> None:
        (found,) = axes(claims=(claim({"a": 5.0, "b": math.nan}, "mb@80", "fewer"),))
        assert [fill for fill, at in dots_of(found) if not math.isnan(at)] == [FILLS[None]]
        assert {"b", "not run yet"} <= texts(found)

    def test_runs_that_are_measured_in_two_units_have_no_axis(self) -> None:
        two = ClaimStanding(Claim(text="", fewer={"a": "mb@80", "b": "seconds@80"}), {"a": {0: 1.0}, "b": {0: 2.0}})
        assert drawn(claims=(two,)) == []


@settings(max_examples=6)
@example("e" * 70, "e" * 300)
@example("abc de " * 10, "abc de " * 42)
@given(st.text("abc de", min_size=1, max_size=70), st.text("abc de", min_size=1, max_size=300))
def test_no_text_leaves_the_picture(label: str, said: str) -> None:
    long = CellStanding(Cell(row=label, column="b", paper=1e4, spread=1.25, run="a", measure="mib"), {0: 2e3, 1: 9e3})
    for picture in drawn((cell((99.0, 98.0)), long), (claim({"a_run_that_waits": 9.0, "b": math.nan}, text=said),)):
        tree = ElementTree.fromstring(picture.text)
        _, _, width, height = map(float, tree.attrib["viewBox"].split())
        for each in tree.iter(f"{_SVG}text"):
            x, y = _place(each)
            wide = _NARROW * len((each.text or "").strip())
            anchor = re.findall("text-anchor: ([a-z]+)", each.attrib["style"]) or ["start"]
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[anchor[0]]
            assert left >= 0
            assert left + wide <= width
            assert 0 < y <= height


def _place(text: ElementTree.Element) -> tuple[float, float]:
    if "x" in text.attrib:
        return float(text.attrib["x"]), float(text.attrib["y"])
    ((x, y),) = re.findall(r"translate\(([-\d.]+) ([-\d.]+)\)", text.attrib["transform"])
    return float(x), float(y)
