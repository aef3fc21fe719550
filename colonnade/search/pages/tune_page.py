"""tune.html: history of a search, importance of every key, and a picture of each."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from colonnade.common.config.members import Config
from colonnade.reports.html.frame import contents, facts, frame, section, table
from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.plots import GREY, picture, rows
from colonnade.search.found import looked, ranked, value_words
from colonnade.search.pages.lines import range_words
from colonnade.search.pages.privacy import TRIALS_PRIVACY
from colonnade.search.space import Searched
from colonnade.search.study import TrialRecord, TrialStore, load_optuna

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED = "#0072b2", "#d55e00"
_WIDTH = 720
_LEAST = 4  # completed trials needed for the importances


@dataclass(frozen=True)
class TunePage:
    """The page; `config` is the file's, without a trial's values."""

    config: Config
    store: TrialStore
    best: TrialRecord
    private: bool

    def html(self) -> str:
        records = self.store.records()
        done = [record for record in records if record.state == "complete"]
        sections = [
            self._best(records),
            section("History", self._history(records), tag("p", _HISTORY)),
            self._weights(done),
            section(
                "Values",
                tag("div", *(self._slice(one, records) for one in self.store.space), class_="charts"),
                tag("p", _SLICES),
            ),
            section("Space", facts((one.key, range_words(one.values)) for one in self.store.space)),
            self._trials(records),
        ]
        return frame(f"{self.config.federation.id}: search", [contents(sections), *sections])

    def _best(self, records: Sequence[TrialRecord]) -> Html:
        goal, times = self.store.goal, looked(records)
        said = [
            tag("p", f"{goal.name} {value_words(self.best.value)} with trial {self.best.number}:", class_="headline"),
            tag("pre", "\n".join(f"--set {setting}" for setting in self.best.settings)),
            tag(
                "p",
                f"{times} trials looked at the validation rows and the best was chosen by them: its {goal.name} is "
                "optimistic for new rows. The test rows were not looked at; a run of best.yaml tests it on them.",
                class_="note",
            ),
        ]
        said += [tag("p", TRIALS_PRIVACY, class_="note")] if self.private else []
        return section("Best trial", joined(said))

    def _history(self, records: Sequence[TrialRecord]) -> Html:
        kept = [record for record in records if record.value is not None]
        done = [record for record in kept if record.state == "complete"]
        front: list[tuple[int, float]] = []
        for record in done:
            assert record.value is not None  # complete
            if not front or self.store.goal.better(record.value, front[-1][1]):
                front.append((record.number, record.value))
        front.append((records[-1].number, front[-1][1]))

        def paint(figure: Figure) -> None:
            axes = figure.subplots()
            axes.step(*zip(*front, strict=True), where="post", color=_BLUE, label="best so far")
            _scatter(axes, [(record.number, record) for record in kept])
            axes.set_xlabel("trial")
            axes.set_ylabel(self.store.goal.name)
            axes.locator_params(axis="x", integer=True)
            figure.legend(loc="outside upper right", ncols=3)

        return Html(picture((_WIDTH, 300), paint, title="History", about=f"{self.store.goal.name} of every trial"))

    def _weights(self, done: Sequence[TrialRecord]) -> Html:
        found = _importances(self.store) if len(done) >= _LEAST and len(self.store.space) > 1 else {}
        if not found:
            return Html()

        def paint(figure: Figure) -> None:
            axes = rows(figure.subplots(), list(found))
            drawn = axes.barh(range(len(found)), list(found.values()), 0.6, color=_BLUE)
            axes.bar_label(drawn, [f"{share:.0%}" for share in found.values()], padding=4)
            axes.set_xlim(0, 1.1)
            axes.xaxis.set_major_formatter(lambda x, _: f"{x:.0%}")

        about = ", ".join(f"{key} {share:.0%}" for key, share in found.items())
        drawn = Html(picture((_WIDTH, 60 + 26 * len(found)), paint, title="Weights of keys", about=about))
        return section("Weights of keys", drawn, tag("p", _WEIGHTS))

    def _slice(self, one: Searched, records: Sequence[TrialRecord]) -> Html:
        kept = [record for record in records if record.value is not None and one.key in record.values]
        if not kept:
            return Html()
        choices = [str(value) for value in one.values.choices]

        def paint(figure: Figure) -> None:
            axes = figure.subplots()
            if choices:
                axes.set_xticks(range(len(choices)), choices)
                axes.set_xlim(-0.5, len(choices) - 0.5)
            elif one.values.log:
                axes.set_xscale("log")
            values = [record.values[one.key] for record in kept]
            at = [choices.index(str(value)) if choices else value for value in values]
            _scatter(axes, list(zip(at, kept, strict=True)))
            axes.set_xlabel(one.key)
            axes.set_ylabel(self.store.goal.name)

        drawn = picture((_WIDTH // 2, 240), paint, title=one.key, about=f"{self.store.goal.name} by {one.key}")
        return tag("figure", Html(drawn))

    def _trials(self, records: Sequence[TrialRecord]) -> Html:
        keys = [one.key for one in self.store.space]
        head = ("trial", "state", self.store.goal.name, "seconds", *keys, "reason")
        lines = [
            (record.number, record.state, value_words(record.value), "-" if record.seconds is None else record.seconds,
             *(_cell(record, key) for key in keys), record.reason)
            for record in ranked(records, self.store.goal)
        ]  # fmt: skip
        return section("All trials", table(head, lines, words=(0, 1, len(head) - 1), caption="The best first"))


_HISTORY = "A dot is a completed trial, a ring one that was pruned, at its last evaluation."
_SLICES = "Every trial by the value that it took. A best value at an end of its range is a reason to widen the range."
_WEIGHTS = (
    "The share of each key in the differences between completed trials, as estimated by Optuna within this space; "
    "with few trials it is a rough guide."
)


def _scatter(axes: Axes, points: Sequence[tuple[float, TrialRecord]]) -> None:
    """Completed trials as dots, pruned ones as rings."""
    for state, fill, edge, name in (("complete", _BLUE, _BLUE, "complete"), ("pruned", "none", _RED, "pruned")):
        here = [(x, record.value) for x, record in points if record.state == state and record.value is not None]
        if here:
            x, y = zip(*here, strict=True)
            axes.scatter(x, y, s=22, facecolors=fill, edgecolors=edge, label=name)
    axes.grid(color=GREY, alpha=0.3)


def _importances(store: TrialStore) -> dict[str, float]:
    """Importance of every key, largest first; empty if all trials are alike."""
    optuna = load_optuna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
            found = optuna.importance.get_param_importances(store.study, evaluator=evaluator)
        except (RuntimeError, ValueError):
            return {}
    return {key: share for key, share in found.items() if math.isfinite(share)}


def _cell(record: TrialRecord, key: str) -> str:
    value = record.values.get(key)
    return "-" if value is None else str(value)
