"""The pictures of tables: what is drawn of cells and claims, and where."""

from __future__ import annotations

import itertools
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.reproduction.pages.axis import Axis, margin
from colonnade.reproduction.pages.fills import FILLS
from colonnade.reproduction.pages.pictures import Picture, pictures
from colonnade.reproduction.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding
from colonnade.reproduction.papers.papers import Cell, Claim, PaperTable

_SVG = "{http://www.w3.org/2000/svg}"
_WIDE = 7  # pixels of a letter in a wide face, at most


def cell(ours: tuple[float, ...], paper: float = 90, measure: str = "accuracy", **more: object) -> CellStanding:
    return CellStanding(Cell(row="ours", column="MNIST", paper=paper, run="one", measure=measure, **more), ours)  # type: ignore[arg-type]


def claim(values: dict[str, float], measure: str = "accuracy", way: str = "more", text: str = "ahead") -> ClaimStanding:
    """Of one seed each; what is not a number was not run."""
    ours = {run: () if math.isnan(value) else (value,) for run, value in values.items()}
    return ClaimStanding(Claim.model_validate({"text": text, way: dict.fromkeys(values, measure)}), ours)


def drawn(cells: tuple[CellStanding, ...] = (), claims: tuple[ClaimStanding, ...] = ()) -> list[Picture]:
    return list(pictures("p", TableStanding("table1", PaperTable(title="A <title>"), cells, claims)))


def only(cells: tuple[CellStanding, ...] = (), claims: tuple[ClaimStanding, ...] = ()) -> ElementTree.Element:
    (picture,) = drawn(cells, claims)
    return ElementTree.fromstring(picture.text)


def texts(tree: ElementTree.Element) -> dict[str, ElementTree.Element]:
    return {each.text or "": each for each in tree.iter(f"{_SVG}text")}


def bars_of(tree: ElementTree.Element) -> list[tuple[str, float]]:
    """Colour and width of every bar, without the legend's squares."""
    found = [(each.attrib["fill"], float(each.attrib["width"])) for each in tree.iter(f"{_SVG}rect")]
    return found[3:]


def dots_of(tree: ElementTree.Element, legend: int = 3) -> list[tuple[str, float]]:
    """Colour and place of every dot, without the legend's."""
    found = [(each.attrib["fill"], float(each.attrib["cx"])) for each in tree.iter(f"{_SVG}circle")]
    return found[legend:]


class TestAxis:
    @given(
        st.lists(st.floats(1e-3, 1e9) | st.just(math.inf), min_size=2, max_size=8),
        st.sampled_from(["MB", "MiB", "s", ""]),
    )
    def test_powers_of_ten_keep_the_order_and_stay_inside(self, values: list[float], unit: str) -> None:
        x = Axis.fitting(values, unit, 250, 590)
        places = [x(value) for value in sorted(values)]
        assert places == sorted(places)
        assert all(250 <= place <= 590 + 1e-6 for place in places)
        assert x(math.inf) == 590

    @given(st.lists(st.floats(0, 100), min_size=1, max_size=8))
    def test_per_cent_is_linear_and_ends_at_a_hundred(self, values: list[float]) -> None:
        x = Axis.fitting(values, "%", 250, 660)
        assert (x(100), x(-1)) == (660, 250)
        assert x(min(values)) >= 250
        middle = (min(values) + 100) / 2
        assert x(middle) == pytest.approx((x(min(values)) + x(100)) / 2)

    def test_a_decade_is_as_wide_as_the_next(self) -> None:
        x = Axis.fitting((0.5, 900), "MB", 0, 400)
        assert [round(x(value)) for value in (0.1, 1, 10, 100, 1000)] == [0, 100, 200, 300, 400]

    @given(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9), st.sampled_from(["MiB", "%"]))
    def test_marks_do_not_touch_and_lie_on_the_axis(self, one: float, other: float, unit: str) -> None:
        values = [min(each, 100.0) for each in (one, other)] if unit == "%" else [one, other]
        x = Axis.fitting(values, unit, 250, 590)
        places = [x(mark) for mark in x.marks]
        assert places[0] == 250
        assert all(after - before > 50 for before, after in itertools.pairwise(places))

    @pytest.mark.parametrize("values", [[], [math.inf], [math.nan], [0.0]])
    def test_no_value_to_go_by_is_an_axis_all_the_same(self, values: list[float]) -> None:
        assert Axis.fitting(values, "MB", 0, 100)(0) == 0

    def test_long_labels_have_a_wider_margin(self) -> None:
        assert margin(["short"]) < margin(["a label " * 10])


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

    def test_what_was_not_run_is_not_drawn(self) -> None:
        waiting = claim({"a": math.nan, "b": math.nan})
        assert drawn((cell(()), cell((), measure="mb")), (waiting,)) == []

    def test_titles_and_descriptions_say_it_all(self) -> None:
        found = drawn((cell((90.0,), spread=0.5), cell((5.0,), measure="mb@95")), (claim({"a": 91, "b": 90}),))
        trees = [ElementTree.fromstring(each.text) for each in found]
        assert [tree.attrib["role"] for tree in trees] == ["img"] * 3
        assert all("A <title>" in tree.findtext(f"{_SVG}title", "") for tree in trees)
        assert [tree.findtext(f"{_SVG}desc") for tree in trees] == [
            "ours, MNIST: the paper 90.00 ± 0.50, ours 90.00",
            "ours, MNIST: the paper 90, ours 5.00",
            "ahead: a 91.00 %, b 90.00 %, reached",
        ]

    def test_the_papers_own_deviation_is_a_line_as_wide_as_it(self) -> None:
        tree = only((cell((90.0,), paper=95, spread=1.0),))
        x = Axis.fitting((90, 95), "%", 250, 660)
        (line,) = tree.iter(f"{_SVG}path")
        assert f"M{x(94):.1f} " in line.attrib["d"]
        assert f"H{x(96):.1f}" in line.attrib["d"]
        assert not list(only((cell((90.0,), paper=95),)).iter(f"{_SVG}path"))


class TestBars:
    def test_are_the_papers_and_ours_in_powers_of_ten(self) -> None:
        tree = only((cell((10.0,), paper=1000, measure="mb@95"), cell((100.0,), paper=10, measure="mb@95")))
        (_, long), (green, least), (_, also_least), (red, middle) = bars_of(tree)
        assert (green, red) == (FILLS[True], FILLS[False])
        assert least == also_least == 1  # what lies at the left end is seen
        assert long == pytest.approx(2 * middle, abs=0.2)

    def test_never_goes_to_the_right_edge(self) -> None:
        tree = only((cell((math.inf,), paper=50, measure="mib@95"),))
        (_, paper), (colour, ours) = bars_of(tree)
        assert colour == FILLS[False]
        assert ours > paper
        assert float(texts(tree)["never"].attrib["x"]) == pytest.approx(250 + ours + 5)


class TestOrders:
    def test_the_first_run_is_marked(self) -> None:
        tree = only(claims=(claim({"a": 91.0, "b": 90.0, "c": 80.0}), claim({"a": 70.0, "b": 90.0})))
        fills = [fill for fill, _ in dots_of(tree)]
        assert fills == [FILLS[True], "none", "none", FILLS[False], "none"]
        assert {"reached", "short", "91.00 %", "70.00 %"} <= set(texts(tree))

    def test_never_stands_at_the_right_edge(self) -> None:
        tree = only(claims=(claim({"a": 5.0, "b": math.inf}, "seconds@80", "fewer"),))
        (_, first), (_, never) = dots_of(tree)
        assert first < never == 590
        assert {"5.00 s", "never"} <= set(texts(tree))

    def test_a_run_that_waits_is_named_and_has_no_dot(self) -> None:
        tree = only(claims=(claim({"a": 5.0, "b": math.nan}, "mb@80", "fewer"),))
        assert [fill for fill, _ in dots_of(tree)] == [FILLS[None]]
        assert {"b", "not run yet"} <= set(texts(tree))

    def test_runs_that_are_measured_in_two_units_have_no_axis(self) -> None:
        two = ClaimStanding(Claim(text="", fewer={"a": "mb@80", "b": "seconds@80"}), {"a": (1.0,), "b": (2.0,)})
        assert drawn(claims=(two,)) == []


@given(st.text("abc de", min_size=1, max_size=70), st.text("abc de", min_size=1, max_size=300))
def test_no_text_leaves_the_picture(label: str, said: str) -> None:
    long = CellStanding(Cell(row=label, column="b", paper=1e4, spread=1.25, run="a", measure="mib"), (2e3, 9e3))
    for picture in drawn((cell((99.0, 98.0)), long), (claim({"a_run_that_waits": 9.0, "b": math.nan}, text=said),)):
        tree = ElementTree.fromstring(picture.text)
        width, height = float(tree.attrib["width"]), float(tree.attrib["height"])
        for each in tree.iter(f"{_SVG}text"):
            x, wide = float(each.attrib["x"]), _WIDE * len(each.text or "")
            left = x - {"start": 0, "middle": wide / 2, "end": wide}[each.attrib["text-anchor"]]
            assert left >= 0
            assert left + wide <= width
            assert 0 < float(each.attrib["y"]) <= height
