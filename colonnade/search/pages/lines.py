"""Console lines of a search."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from colonnade.common.config.search import SearchedKey
from colonnade.common.run.activity import Activity, activity
from colonnade.reports.console.grid import Grid
from colonnade.reports.console.screen import out
from colonnade.reports.words import counted
from colonnade.search.found import Search, ranked, value_words
from colonnade.search.pages.privacy import TRIALS_PRIVACY
from colonnade.search.study import Asked, TrialRecord, TrialStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
