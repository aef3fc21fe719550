"""cv.html: the folds of a cross-validation, their mean and deviation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from colonnade.common.config.members import Config
from colonnade.reports.html.frame import facts, frame, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.plots import GREY, picture
from colonnade.reports.words import counted
from colonnade.search.pages.privacy import FOLDS_PRIVACY, is_private

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BLUE = "#0072b2"


@dataclass(frozen=True)
class FoldRecord:
    """A completed fold.

    Args:
        repeat, fold: from 1.
        rows: number held out.
        metrics: of these rows, by name.
        seconds: of computing.
    """

    repeat: int
    fold: int
    rows: int
    metrics: Mapping[str, float]
    seconds: float

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "metrics": dict(self.metrics)}


def say_folds(metric: str, records: Sequence[FoldRecord]) -> list[str]:
    """Mean and deviation, and how not to read them."""
    values = [record.metrics[metric] for record in records]
    return [
        f"{metric}: mean {mean(values):.4f}, standard deviation {stdev(values):.4f} over "
        f"{counted(len(values), 'fold')}",
        "Folds share most of their training rows: the deviation says how much folds differ, and is no standard error "
        "of the mean.",
        "A data set's own test rows take no part.",
    ]


@dataclass(frozen=True)
class CvPage:
    """The page; `splits` says how rows were divided into folds."""

    config: Config
    metric: str
    records: Sequence[FoldRecord]
    splits: Mapping[str, Any]

    def html(self) -> str:
        first, *notes = say_folds(self.metric, self.records)
        said = [tag("p", first, class_="headline"), *(tag("p", each) for each in notes)]
        said += [tag("p", FOLDS_PRIVACY, class_="note")] if is_private(self.config) else []
        kind = "StratifiedKFold" if self.splits["stratified"] else "KFold"
        about = (
            ("protocol", self.config.federation.protocol.name),
            ("folds", f"{self.splits['folds']}, {counted(self.splits['repeats'], 'repeat')}"),
            ("drawn by", f"scikit-learn's {kind}, seed {self.splits['seed']}"),
        )
        sections = [
            joined(said),
            section("Folds", self._picture(), self._table()),
            section("All metrics", self._metrics()),
            section("How", facts(about)),
        ]
        return frame(f"{self.config.federation.id}: cross-validation", sections)

    def _picture(self) -> Html:
        values = [record.metrics[self.metric] for record in self.records]

        def paint(figure: Figure) -> None:
            axes = figure.subplots()
            axes.axvline(mean(values), color=GREY, linewidth=1)
            axes.scatter(values, [record.repeat for record in self.records], s=26, color=_BLUE)
            axes.set_yticks(range(1, max(record.repeat for record in self.records) + 1))
            axes.set_ylabel("repeat")
            axes.set_xlabel(self.metric)
            axes.margins(y=0.4)

        height = 90 + 24 * max(record.repeat for record in self.records)
        about = f"{self.metric} of every fold, and a line at the mean"
        return Html(picture((720, height), paint, title="Folds", about=about))

    def _table(self) -> Html:
        lines = [
            (f"{record.repeat}.{record.fold}", record.rows, f"{record.metrics[self.metric]:.4f}", record.seconds)
            for record in self.records
        ]
        return table(("repeat.fold", "rows held out", self.metric, "seconds"), lines, caption="Every fold")

    def _metrics(self) -> Html:
        names = [name for name in self.records[0].metrics if all(name in record.metrics for record in self.records)]
        columns = {name: [record.metrics[name] for record in self.records] for name in names}
        lines = [
            (name, f"{mean(values):.4f}", f"{stdev(values):.4f}", f"{min(values):.4f}", f"{max(values):.4f}")
            for name, values in columns.items()
        ]
        return table(("metric", "mean", "deviation", "least", "most"), lines)
