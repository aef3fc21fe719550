"""cv.html: the folds of a cross-validation, and their mean with an interval."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from scipy.special import stdtrit

from colonnade.common.config.members import Config
from colonnade.reports.html.charts import Axis, Bar, row_chart
from colonnade.reports.html.markup import Html
from colonnade.reports.html.page import render
from colonnade.reports.standings.contender import Measure
from colonnade.reports.words import counted, seconds
from colonnade.search.pages.privacy import FOLDS_PRIVACY, is_private
from colonnade.search.pages.tune_page import TEMPLATES

_GREY = 6


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


def half_interval(values: Sequence[float], held: float) -> float:
    """Half of the 95% interval of the mean over folds that share training rows.

    Nadeau and Bengio (2003): the variance of the mean is s² (1/n + held / (1 - held)), where a plain standard error has
    s²/n and is too small.

    Args:
        values: at least two.
        held: share of the rows that a fold holds out.
    """
    widened = 1 / len(values) + held / (1 - held)
    return float(stdtrit(len(values) - 1, 0.975)) * stdev(values) * math.sqrt(widened)


def say_folds(metric: str, records: Sequence[FoldRecord]) -> list[str]:
    """Mean with its interval, and how to read them."""
    values, measure = [record.metrics[metric] for record in records], Measure(metric)
    half = half_interval(values, _held(records))
    return [
        f"{measure.name} {measure.say(mean(values)).removesuffix('%')} ± {measure.say(half)}: mean of "
        f"{counted(len(values), 'fold')} ({measure.say(min(values))} to {measure.say(max(values))})",
        "± is half of the 95% interval, widened since folds share most of their training rows; the standard deviation "
        f"of folds, {measure.say(stdev(values))}, is no standard error of the mean.",
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
        headline, *notes = say_folds(self.metric, self.records)
        return render(
            "cv.html",
            {
                "title": f"{self.config.federation.id}: cross-validation",
                "headline": headline[:1].upper() + headline[1:] + ".",
                "notes": notes,
                "cards": self._cards(),
                "private": FOLDS_PRIVACY if is_private(self.config) else "",
                "name": self._measure.name,
                "chart": self._chart(),
                "folds": [
                    (_named(one), one.rows, f"{one.metrics[self.metric]:.4f}", f"{one.seconds:.1f}")
                    for one in self.records
                ],
                "metrics": self._metrics(),
            },
            beside=TEMPLATES,
        )

    @property
    def _measure(self) -> Measure:
        return Measure(self.metric)

    def _cards(self) -> list[Mapping[str, object]]:
        kind = "StratifiedKFold" if self.splits["stratified"] else "KFold"
        protocol = self.config.federation.protocol.name
        spent = sum(record.seconds for record in self.records)
        least, most = min(one.rows for one in self.records), max(one.rows for one in self.records)
        rows = f"{least} rows" if least == most else f"{least} to {most} rows"
        divided = f"{self.splits['folds']}, {counted(self.splits['repeats'], 'repeat')}"
        return [
            {"title": "Protocol", "value": protocol, "tone": "", "lines": [f"{seconds(spent)} of computing"]},
            {"title": "Folds", "value": str(len(self.records)), "tone": "",
             "lines": [f"{divided}; {rows} held out each"]},
            {"title": "Drawn by", "value": kind, "tone": "", "lines": [f"scikit-learn, seed {self.splits['seed']}"]},
        ]  # fmt: skip

    def _chart(self) -> Html:
        """A dot a fold, below the mean with its interval."""
        values, say = [record.metrics[self.metric] for record in self.records], self._measure.say
        middle, half = mean(values), half_interval(values, _held(self.records))
        bars = [Bar("mean", middle, f"{say(middle).removesuffix('%')} ± {say(half)}", middle - half, middle + half,
                    _GREY, line=True, best=True)]  # fmt: skip
        bars += [
            Bar(f"fold {_named(record)}", value, say(value)) for record, value in zip(self.records, values, strict=True)
        ]
        caption = f"{self._measure.name} of the rows that each fold holds out"
        return row_chart(bars, Axis(self._measure.name, say), caption=caption, dots=True)

    def _metrics(self) -> list[tuple[str, ...]]:
        names = [name for name in self.records[0].metrics if all(name in record.metrics for record in self.records)]
        columns = {name: [record.metrics[name] for record in self.records] for name in names}
        return [
            (name, f"{mean(values):.4f}", f"{stdev(values):.4f}", f"{min(values):.4f}", f"{max(values):.4f}")
            for name, values in columns.items()
        ]


def _named(record: FoldRecord) -> str:
    return f"{record.repeat}.{record.fold}"


def _held(records: Sequence[FoldRecord]) -> float:
    """Share of the rows that a fold holds out."""
    first = [record.rows for record in records if record.repeat == records[0].repeat]
    return mean(first) / sum(first)
