"""A party's shape functions in pictures, for its own eyes: what each column's values add to the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from colonnade.client.training.trees.pairs import COARSE
from colonnade.reports.html.curves import colour
from colonnade.reports.html.frame import frame, section
from colonnade.reports.html.markup import Html, tag
from colonnade.reports.plots import GREY, picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST = 30  # pictures
_WORDS = 10  # a picture, the most frequent ones
_SIZE, _MARKS, _LETTERS = (270, 210), 3, 14

Shape = Mapping[str, Any]

_SAID = """What a value adds to the scores, less the mean over the training rows: 0 is a column that tells nothing of a
row. All pictures have one scale, the most important column first. Numbers are drawn by bin: a step is a bin, so that
the axis is wide where many rows are; its marks are cuts between bins. In a pair blue adds and red takes away."""


def shapes_html(title: str, columns: Sequence[Shape], pairs: Sequence[Shape]) -> str:
    """The self-contained page.

    Args:
        columns, pairs: as of `ShapeSum.described`, the most important first.
    """
    drawn = [(one["column"], one) for one in columns] + [(" x ".join(one["columns"]), one) for one in pairs]
    drawn = sorted((one for one in drawn if one[1]["importance"]), key=lambda named: -named[1]["importance"])
    span = max((abs(_points(one)).max() for _, one in drawn), default=0.0) * 1.08 or 1.0
    figures = [
        tag("figure", Html(_picture(one, span)), tag("figcaption", f"{name} ({one['importance']:.3f})"))
        for name, one in drawn[:_MOST]
    ]
    left = [tag("p", f"{len(drawn) - _MOST} of less importance are in explain.json.")] if len(drawn) > _MOST else []
    scores = len(columns[0]["mean"]) if columns else 1
    legend: list[object] = []
    for number in range(scores if scores > 1 else 0):
        legend += [tag("span", class_="dot", style=f"background:{colour(number)}"), f"score {number}"]
    about = "In brackets, a column's importance: the mean distance of its points from their mean."
    return frame(title, [
        tag("p", _SAID), tag("p", about), tag("p", *legend) if legend else Html(),
        section("Columns", tag("div", *figures, class_="maps"), *left),
    ])  # fmt: skip


def _points(shape: Shape) -> NDArray[np.float64]:
    """By bin and score, less their means: (bins, scores)."""
    found: NDArray[np.float64] = np.asarray(shape["points"]) - np.asarray(shape["mean"])
    return found


def _picture(shape: Shape, span: float) -> str:
    def paint(figure: Figure) -> None:
        axes = figure.subplots()
        if "cells" in shape:
            _pair(axes, shape, span)
            return
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.grid(axis="y")
        axes.grid(visible=False, axis="x")
        axes.set_ylim(-span, span)
        (_numbers if "cuts" in shape else _words)(axes, shape)

    return picture(_SIZE, paint)


def _numbers(axes: Axes, shape: Shape) -> None:
    """Steps over the bins, and a dot for missing values that have a bin of their own."""
    points, cuts = _points(shape), shape["cuts"]
    bins, ends = len(cuts) + 1, np.arange(len(cuts) + 2)
    for score in range(points.shape[1]):
        axes.stairs(points[:bins, score], ends, baseline=None, color=colour(score), linewidth=1.5)
    marks = np.unique(np.linspace(1, len(cuts), min(_MARKS, len(cuts))).round().astype(int)).tolist()
    names = [f"{cut:,.0f}" if abs(cut) >= 1000 else f"{cut:.3g}" for cut in (cuts[mark - 1] for mark in marks)]
    if shape["missing"] >= bins:
        marks.append(1.25 * bins)
        names.append("missing")
        for score, point in enumerate(points[shape["missing"]]):
            axes.plot(marks[-1:], [point], "o", color=colour(score))
    axes.set_xticks(marks, names)


def _words(axes: Axes, shape: Shape) -> None:
    """A bar for each of the most frequent words, for the others and for missing values, if they have bins."""
    points, words = _points(shape), shape["words"]
    places = [*range(min(len(words), _WORDS))]
    names = list(words[:_WORDS])
    for place, name in ((shape["others"], "others"), (shape["missing"], "missing")):
        if place >= len(words) and place not in places:
            places.append(place)
            names.append(name)
    wide = 0.8 / points.shape[1]
    for score in range(points.shape[1]):
        axes.bar(np.arange(len(places)) + wide * score, points[places, score], wide, color=colour(score))
    axes.set_xticks(
        np.arange(len(places)) + 0.4 - wide / 2,
        [name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}.." for name in names],
        rotation=35, ha="right", rotation_mode="anchor",
    )  # fmt: skip


def _pair(axes: Axes, shape: Shape, span: float) -> None:
    """The first score of each cell, of the groups of both columns; blue adds, red takes away."""
    points, cells = _points(shape)[:, 0], np.asarray(shape["cells"]).reshape(COARSE, COARSE)
    first, second = (max(groups) + 1 for groups in shape["groups"])
    axes.pcolormesh(points[cells[:first, :second]].T, cmap="RdBu", vmin=-span, vmax=span)
    across, up = (f"{name}, groups of bins" for name in shape["columns"])
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=False)
    axes.locator_params(integer=True, nbins=4)
