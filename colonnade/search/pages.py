"""Console output and pages of searches: tune.html, and cv.html with the folds, their mean and its interval."""

from __future__ import annotations

import math
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from scipy.special import stdtrit

from colonnade.common.config.members import Config, SearchedKey
from colonnade.common.run.activity import Activity, activity
from colonnade.common.text import plain
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out
from colonnade.reports.html.charts import Axis, Bar, Dot, Mark, Trend, line_chart, row_chart, scatter_chart
from colonnade.reports.html.page import Html, render, tile
from colonnade.reports.standings.contender import SHARES, Estimate, Measure
from colonnade.reports.standings.page import Figure, ValueTable
from colonnade.reports.words import counted, seconds
from colonnade.search.comparison.outputs import in_short
from colonnade.search.found import Search, looked, ranked, value_words
from colonnade.search.metrics import SearchMetric
from colonnade.search.space import Searched
from colonnade.search.study import Asked, TrialRecord, TrialStore, load_optuna

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHOWN = 5


class Lines:
    """Prints the progress of a search; `trials` is their total."""

    def __init__(self, store: TrialStore, trials: int, *, show: bool) -> None:
        self._store, self._trials, self._show = store, trials, show
        self._lock = threading.Lock()
        self._doing = Activity("searching")

    def begin(self, usual: bool, resumed: int, storage: str) -> None:
        """Prints the starting state.

        Args:
            usual: whether the space is the default one, not the file's.
            resumed: number of trials that were left over.
            storage: shared by several machines; "" for none.
        """
        if usual:
            self._say("the file has no section `search`; a usual space:")
        for one in self._store.space:
            self._say(f"  {one.key}: {range_words(one.values)}")
        done = len(self._store.counted())
        if done or resumed:
            again = f", {counted(resumed, 'trial')} cut off and tried again" if resumed else ""
            self._say(f"goes on after {counted(done, 'trial')}{again}")
        if storage:
            self._say(f"trials in {storage}, shared by all that name it")

    @contextmanager
    def searching(self) -> Iterator[None]:
        """The trials as an activity, until the block ends."""
        with activity("searching", self._trials, "trials") as self._doing:
            self._doing.done = self._doing.kept = len(self._store.counted())
            yield

    def ended(self, asked: Asked) -> None:
        """Prints how a trial has ended."""
        if not self._show:
            return
        with self._lock:
            record = next(one for one in self._store.records() if one.number == asked.number)
            best = self._store.best()
            spent = len(self._store.counted())
        name = self._store.goal.name
        said = {
            "complete": f"{name} {value_words(record.value)}",
            "pruned": f"pruned after {counted(record.evaluations, 'evaluation')} with {name} "
            f"{value_words(record.value)}",
            "failed": f"failed: {record.reason}",
        }.get(record.state, record.state)
        seconds = "" if record.seconds is None else f" in {record.seconds:.1f} s"
        self._doing.done = spent
        self._doing.facts = () if best is None else (f"best {name} {value_words(best.value)}",)
        leader = "" if best is None else f" (best {value_words(best.value)}, trial {best.number})"
        line = f"[{spent}/{self._trials}] trial {record.number}: {said}{seconds}{leader}: {self._in_short(record)}"
        self._say(line, "yellow" if record.state == "failed" else "dim")

    def end(self, found: Search, gain: str, *, private: bool) -> None:
        """Prints the table of the best trials, what the best gains, and next steps."""
        if not self._show:
            return
        records = self._store.records()
        out.show(_table(records, self._store))
        states = ", ".join(f"{sum(r.state == state for r in records)} {state}" for state in _states(records))
        self._say(f"trials: {states}", "")
        self._say(f"best: {found.metric} {value_words(found.best_value)} with", "")
        for each in found.best_settings:
            self._say(f"  --set {each}", "")
        self._say(gain, "")
        self._say(
            f"{counted(found.evaluated, 'trial')} looked at the validation rows: the best {found.metric} is optimistic "
            "for new rows. The test rows were not looked at."
        )
        if private:
            self._say(TRIALS_PRIVACY, "yellow")
        if running := sum(record.state == "running" for record in records):
            self._say(f"{counted(running, 'trial')} still under way elsewhere: run the command again for the end")
        out.point("page", found.page)
        out.point("next", f"colonnade up {found.folder / 'best.yaml'}")

    def _in_short(self, record: TrialRecord) -> str:
        """The values of a trial, each by the shortest unique end of its key."""
        said = []
        for key, value in record.values.items():
            steps = key.split(".")
            ends = (".".join(steps[place:]) for place in range(len(steps) - 1, -1, -1))
            others = [other for other in record.values if other != key]
            end = next((end for end in ends if not any(f".{other}".endswith(f".{end}") for other in others)), key)
            said.append(f"{end}={value}")
        return " ".join(said)

    def _say(self, text: str, style: str = "dim") -> None:
        if self._show:
            out.say(text, style)


def range_words(values: object) -> str:
    assert isinstance(values, SearchedKey)
    if values.choices:
        return "one of " + ", ".join(map(str, values.choices))
    kind = "whole numbers " if values.integer else ""
    return f"{kind}{values.low:g} to {values.high:g}{', by their logarithm' if values.log else ''}"


def _states(records: Sequence[TrialRecord]) -> list[str]:
    order = ("complete", "pruned", "failed", "lost", "running", "waiting")
    return [state for state in order if any(record.state == state for record in records)]


def _table(records: Sequence[TrialRecord], store: TrialStore) -> Grid:
    title = f"the best {store.goal.name} of validation rows"
    table = Grid("trial", store.goal.name, "settings", title=title)
    for record in [one for one in ranked(records, store.goal) if one.state == "complete"][:_SHOWN]:
        table.add_row(str(record.number), value_words(record.value), "\n".join(record.settings))
    return table


TRIALS_PRIVACY = (
    "Every trial trains on the same rows with noise, and spends privacy: the epsilon of the final run covers neither "
    "the trials nor the choice among them. Search on data that are not secret, or with `privacy` left out."
)
FOLDS_PRIVACY = (
    "Every fold trains on mostly the same rows with noise, and spends privacy: the epsilon of one run does not cover "
    "a cross-validation."
)


def is_private(config: Config) -> bool:
    """True if training adds noise, so that every simulation on the same rows spends privacy."""
    own = config.server.privacy if config.server else None
    labels = own is not None and (own.labels is not None or own.answers is not None)
    return config.federation.privacy is not None or labels


TEMPLATES = Path(__file__).parent / "templates"
_LEAST = 4  # completed trials needed for the importances
_MOST = 4  # keys with a chart each


def gain_words(best: TrialRecord, own: TrialRecord | None, goal: SearchMetric) -> str:
    """What the best trial gains over the file's own settings on validation rows, with its interval."""
    measure = goal.measure
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


def tune_page(config: Config, store: TrialStore, best: TrialRecord, own: TrialRecord | None) -> str:
    """tune.html.

    Args:
        config: the file's, without a trial's values.
        own: the trial with the file's own settings; None if they are outside of the space.
    """
    records, goal = store.records(), store.goal
    measure = goal.measure
    done = [record for record in records if record.state == "complete" and record.value is not None]
    weights = _importances(store) if len(done) >= _LEAST and len(store.space) > 1 else {}
    reached = measure.said(Estimate(best.value or 0.0, best.error))
    keys = sorted(store.space, key=lambda one: -weights.get(one.key, 0.0))[:_MOST]
    return render(
        "tune.html",
        {
            "title": f"{config.federation.id}: search",
            "headline": f"{measure.title} {reached} on the validation rows with the best of "
            f"{counted(len(records), 'trial')}. {gain_words(best, own, goal)}",
            "cards": _tune_cards(records, best, measure),
            "private": TRIALS_PRIVACY if is_private(config) else "",
            "name": measure.title,
            "history": _history(done, best, goal),
            "trials": _trials(records, store),
            "weights": _weights(weights),
            "slices": [Figure(one.key, _slice(one, done, best, goal)) for one in keys if len(done) > 1],
            "space": [(one.key, range_words(one.values)) for one in store.space],
        },
        beside=TEMPLATES,
    )


def _tune_cards(records: Sequence[TrialRecord], best: TrialRecord, measure: Measure) -> list[Mapping[str, object]]:
    states = [f"{count} {state}" for state, count in Counter(one.state for one in records).items()]
    spent = sum(one.seconds or 0.0 for one in records)
    seen = (
        f"{looked(records)} trials looked at the validation rows and the best was chosen by them: its "
        f"{measure.title} is optimistic for new rows."
    )
    return [
        tile("Best settings", f"trial {best.number}", *map(in_short, best.settings), tone="good"),
        tile("Trials", str(len(records)), ", ".join(states), f"{seconds(spent)} of computing"),
        tile("Next", "best.yaml", seen, "The test rows were not looked at: a run of best.yaml tests it."),
    ]


def _history(done: Sequence[TrialRecord], best: TrialRecord, goal: SearchMetric) -> Html:
    measure = goal.measure
    front: list[tuple[float, float]] = []
    for record in done:
        assert record.value is not None  # complete
        if front and goal.better(front[-1][1], record.value):
            front.append((record.number, front[-1][1]))
        else:
            front += [(record.number, front[-1][1])] if front else []
            front.append((record.number, record.value))
    marks = [Mark(one.number, "best" if one.number == best.number else "", one.value) for one in done]
    values = [record.value or 0.0 for record in done]
    margin = 0.05 * (max(values) - min(values)) or 0.01
    up = Axis(measure.title, measure.say, (min(values) - margin, max(values) + margin))
    line = Trend("best so far", front)
    return line_chart([line], Axis("trial", plain), up, title=f"{measure.title} by trial", marks=marks)


def _slice(one: Searched, done: Sequence[TrialRecord], best: TrialRecord, goal: SearchMetric) -> Html:
    """The metric by a key's values; for choices, the best of each."""
    measure = goal.measure
    up = Axis(measure.title, measure.say)
    kept = [record for record in done if one.key in record.values]
    if not one.values.choices:
        dots = [
            Dot("best" if each.number == best.number else "", float(each.values[one.key]), each.value or 0.0)
            for each in kept
        ]
        log = bool(one.values.log)
        return scatter_chart(dots, Axis(one.key, plain), up, title=one.key, log=log)
    first: dict[str, TrialRecord] = {}
    for record in ranked(kept, goal):
        first.setdefault(str(record.values[one.key]), record)
    bars = [
        Bar(choice, record.value or 0.0, measure.say(record.value), best=record.number == best.number)
        for choice, record in first.items()
    ]
    return row_chart(bars, up, caption=f"Best {measure.title} of each choice", dots=True)


def _trials(records: Sequence[TrialRecord], store: TrialStore) -> ValueTable:
    measure = store.goal.measure
    keys = [one.key for one in store.space]
    head = ("trial", "state", measure.title, "seconds", *(in_short(key) for key in keys), "reason")
    rows = [
        (record.number, record.state, measure.say(record.value), record.seconds,
         *(_cell(record, key) for key in keys), record.reason)
        for record in ranked(records, store.goal)
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


_GREY = 6


@dataclass(frozen=True)
class FoldRecord:
    """A completed fold.

    Args:
        repeat, fold: from 1.
        rows: number held out.
    """

    repeat: int
    fold: int
    rows: int
    metrics: Mapping[str, float]
    seconds: float


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


def cv_page(config: Config, metric: str, records: Sequence[FoldRecord], splits: Mapping[str, Any]) -> str:
    """cv.html; `splits` says how rows were divided into folds."""
    headline, *notes = say_folds(metric, records)
    return render(
        "cv.html",
        {
            "title": f"{config.federation.id}: cross-validation",
            "headline": headline[:1].upper() + headline[1:] + ".",
            "notes": notes,
            "cards": _cv_cards(config, records, splits),
            "private": FOLDS_PRIVACY if is_private(config) else "",
            "name": Measure(metric).name,
            "chart": _chart(metric, records),
            "folds": [(_named(one), one.rows, f"{one.metrics[metric]:.4f}", f"{one.seconds:.1f}") for one in records],
            "metrics": _metrics(records),
        },
        beside=TEMPLATES,
    )


def _cv_cards(config: Config, records: Sequence[FoldRecord], splits: Mapping[str, Any]) -> list[Mapping[str, object]]:
    kind = "StratifiedKFold" if splits["stratified"] else "KFold"
    protocol = config.federation.protocol.name
    spent = sum(record.seconds for record in records)
    least, most = min(one.rows for one in records), max(one.rows for one in records)
    rows = f"{least} rows" if least == most else f"{least} to {most} rows"
    divided = f"{splits['folds']}, {counted(splits['repeats'], 'repeat')}"
    return [
        tile("Protocol", protocol, f"{seconds(spent)} of computing"),
        tile("Folds", str(len(records)), f"{divided}; {rows} held out each"),
        tile("Drawn by", kind, f"scikit-learn, seed {splits['seed']}"),
    ]


def _chart(metric: str, records: Sequence[FoldRecord]) -> Html:
    """A dot a fold, below the mean with its interval."""
    values, measure = [record.metrics[metric] for record in records], Measure(metric)
    say = measure.say
    middle, half = mean(values), half_interval(values, _held(records))
    bars = [Bar("mean", middle, f"{say(middle).removesuffix('%')} ± {say(half)}", middle - half, middle + half,
                _GREY, line=True, best=True)]  # fmt: skip
    bars += [Bar(f"fold {_named(record)}", value, say(value)) for record, value in zip(records, values, strict=True)]
    caption = f"{measure.name} of the rows that each fold holds out"
    return row_chart(bars, Axis(measure.name, say), caption=caption, dots=True)


def _metrics(records: Sequence[FoldRecord]) -> list[tuple[str, ...]]:
    names = [name for name in records[0].metrics if all(name in record.metrics for record in records)]
    columns = {name: [record.metrics[name] for record in records] for name in names}
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
