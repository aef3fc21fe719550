"""tune.html: the best settings and what they gain, trials, and the keys that mattered."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colonnade.common.config.members import Config
from colonnade.common.run.numbers import plain
from colonnade.reports.html.charts import Axis, Bar, Dot, Mark, Trend, line_chart, row_chart, scatter_chart
from colonnade.reports.html.markup import Html
from colonnade.reports.html.page import render
from colonnade.reports.standings.contender import SHARES, Estimate, Measure
from colonnade.reports.standings.page import Figure, ValueTable
from colonnade.reports.words import counted, seconds
from colonnade.search.comparison.outputs import in_short
from colonnade.search.found import looked, ranked
from colonnade.search.metrics import UP, SearchMetric
from colonnade.search.pages.lines import range_words
from colonnade.search.pages.privacy import TRIALS_PRIVACY
from colonnade.search.space import Searched
from colonnade.search.study import TrialRecord, TrialStore, load_optuna

TEMPLATES = Path(__file__).parent / "templates"
_LEAST = 4  # completed trials needed for the importances
_MOST = 4  # keys with a chart each


def gain_words(best: TrialRecord, own: TrialRecord | None, goal: SearchMetric) -> str:
    """What the best trial gains over the file's own settings on validation rows, with its interval."""
    measure = Measure(goal.metric, goal.direction == UP)
    if own is None or own.value is None or best.value is None:
        return "The file's own settings are outside of the space, so that there is nothing to compare with."
    if own.number == best.number:
        return "No trial is better than the file's own settings."
    before, after = Estimate(own.value, own.error), Estimate(best.value, best.error)
    scale = 100 if goal.metric in SHARES else 1
    found = measure.gap(scale * abs(after.value - before.value)).lstrip("+")
    than = f"better than the file's own settings ({measure.say(before.value)})"
    if before.error is None or after.error is None:
        return f"{found} {than}; no interval is known."
    half = measure.gap(scale * after.half_of_difference(before)).lstrip("+")
    if after.differs(before):
        return f"{found.removesuffix(' points')} ± {half} {than}."
    return f"{found} {than}, which is less than its interval of ± {half}: these rows do not show a gain."


@dataclass(frozen=True)
class TunePage:
    """The page; `config` is the file's, without a trial's values.

    Args:
        own: the trial with the file's own settings; None if they are outside of the space.
    """

    config: Config
    store: TrialStore
    best: TrialRecord
    own: TrialRecord | None
    private: bool

    def html(self) -> str:
        records, goal = self.store.records(), self.store.goal
        done = [record for record in records if record.state == "complete" and record.value is not None]
        weights = _importances(self.store) if len(done) >= _LEAST and len(self.store.space) > 1 else {}
        best = self._measure.said(Estimate(self.best.value or 0.0, self.best.error))
        keys = sorted(self.store.space, key=lambda one: -weights.get(one.key, 0.0))[:_MOST]
        return render(
            "tune.html",
            {
                "title": f"{self.config.federation.id}: search",
                "headline": f"{self._name} {best} on the validation rows with the best of "
                f"{counted(len(records), 'trial')}. {gain_words(self.best, self.own, goal)}",
                "cards": self._cards(records),
                "private": TRIALS_PRIVACY if self.private else "",
                "name": self._name,
                "history": self._history(done),
                "trials": self._trials(records),
                "weights": _weights(weights),
                "slices": [Figure(one.key, self._slice(one, done)) for one in keys if len(done) > 1],
                "space": [(one.key, range_words(one.values)) for one in self.store.space],
            },
            beside=TEMPLATES,
        )

    @property
    def _measure(self) -> Measure:
        return Measure(self.store.goal.metric, self.store.goal.direction == UP)

    @property
    def _name(self) -> str:
        return self._measure.name[:1].upper() + self._measure.name[1:]

    def _cards(self, records: Sequence[TrialRecord]) -> list[Mapping[str, object]]:
        states = [f"{count} {state}" for state, count in Counter(one.state for one in records).items()]
        spent = sum(one.seconds or 0.0 for one in records)
        seen = (
            f"{looked(records)} trials looked at the validation rows and the best was chosen by them: its "
            f"{self._name} is optimistic for new rows."
        )
        return [
            {"title": "Best settings", "value": f"trial {self.best.number}", "tone": "good",
             "lines": [in_short(setting) for setting in self.best.settings]},
            {"title": "Trials", "value": str(len(records)), "tone": "",
             "lines": [", ".join(states), f"{seconds(spent)} of computing"]},
            {"title": "Next", "value": "best.yaml", "tone": "",
             "lines": [seen, "The test rows were not looked at: a run of best.yaml tests it."]},
        ]  # fmt: skip

    def _history(self, done: Sequence[TrialRecord]) -> Html:
        front: list[tuple[float, float]] = []
        for record in done:
            assert record.value is not None  # complete
            if front and self.store.goal.better(front[-1][1], record.value):
                front.append((record.number, front[-1][1]))
            else:
                front += [(record.number, front[-1][1])] if front else []
                front.append((record.number, record.value))
        marks = [
            Mark(one.number, "best" if one is self.best or one.number == self.best.number else "", one.value)
            for one in done
        ]
        values = [record.value or 0.0 for record in done]
        margin = 0.05 * (max(values) - min(values)) or 0.01
        up = Axis(self._name, self._measure.say, (min(values) - margin, max(values) + margin))
        line = Trend("best so far", front)
        return line_chart([line], Axis("trial", plain), up, title=f"{self._name} by trial", marks=marks)

    def _slice(self, one: Searched, done: Sequence[TrialRecord]) -> Html:
        """Values of the metric by those of a key; of choices, the best of each."""
        up = Axis(self._name, self._measure.say)
        kept = [record for record in done if one.key in record.values]
        if not one.values.choices:
            dots = [
                Dot("best" if each.number == self.best.number else "", float(each.values[one.key]), each.value or 0.0)
                for each in kept
            ]
            log = bool(one.values.log)
            return scatter_chart(dots, Axis(one.key, plain), up, title=one.key, log=log)
        best: dict[str, TrialRecord] = {}
        for record in ranked(kept, self.store.goal):
            best.setdefault(str(record.values[one.key]), record)
        bars = [
            Bar(choice, record.value or 0.0, self._measure.say(record.value), best=record.number == self.best.number)
            for choice, record in best.items()
        ]
        return row_chart(bars, up, caption=f"Best {self._name} of each choice", dots=True)

    def _trials(self, records: Sequence[TrialRecord]) -> ValueTable:
        keys = [one.key for one in self.store.space]
        head = ("trial", "state", self._name, "seconds", *(in_short(key) for key in keys), "reason")
        rows = [
            (record.number, record.state, self._measure.say(record.value), record.seconds,
             *(_cell(record, key) for key in keys), record.reason)
            for record in ranked(records, self.store.goal)
        ]  # fmt: skip
        return ValueTable(head, rows, (0, 1, len(head) - 1)).full()


def _weights(found: Mapping[str, float]) -> Html:
    if not found:
        return Html()
    bars = [Bar(key, share, f"{share:.0%}") for key, share in found.items()]
    return row_chart(bars, Axis("share", lambda value: f"{value:.0%}", (0.0, 1.0)), caption="Share of each key")


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


def _cell(record: TrialRecord, key: str) -> Any:
    value = record.values.get(key)
    return "-" if value is None else str(value)
