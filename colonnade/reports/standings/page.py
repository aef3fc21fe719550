"""The page of a comparison: one chart first, then quality against costs, and excluded contenders.

It recommends one contender, with the reason: by validation rows if there are any, and by cost if they do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colonnade.reports.html.charts import Axis, Bar, Dot, row_chart, scatter_chart
from colonnade.reports.html.page import Html, in_notebook, render, tile
from colonnade.reports.standings.contender import SHARES, Contender, Estimate, Measure
from colonnade.reports.words import amount, seconds

_PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 7: "a seventh", 8: "an eighth",
          9: "a ninth", 10: "a tenth", 20: "a twentieth"}  # fmt: skip


def rows_words(number: int, part: str) -> str:
    return f"{number:,} {part} rows" if number else f"{part} rows"


@dataclass(frozen=True)
class Choice:
    """A recommendation.

    Args:
        taken: the recommended contender; None if there is none.
        tied: contenders not distinguishable from the best on these rows, including `taken`.
        headline: the recommendation, or why there is none.
    """

    taken: Contender | None
    tied: tuple[Contender, ...]
    headline: str
    reason: str


def choose(standings: Sequence[Contender], measure: Measure, *, test: int, validation: int) -> Choice:
    """Recommends the contender with the least traffic within one standard error of the best value on validation rows.

    Args:
        test, validation: number of these rows, 0 if unknown.
    """
    standing = [each for each in standings if each.stands]
    if not standing:
        return Choice(None, (), _nothing(standings, test), "")
    free = [each for each in standing if not each.gives_labels] or standing
    validated = all(each.validation is not None for each in free)
    rows = f"the {rows_words(validation, 'validation') if validated else rows_words(test, 'test')}"

    def judged(one: Contender) -> Estimate:
        found = one.validation if validated else one.test
        assert found is not None  # of all that stand
        return found

    best = measure.best(free, lambda one: judged(one).value)
    top = judged(best)
    tied = [best, *(one for one in free if one is not best and not judged(one).differs(top))]
    close = [one for one in tied if abs(judged(one).value - top.value) <= (top.error or 0.0)]
    taken = min(close, key=lambda one: math.inf if one.sent is None else one.sent)
    headline = f"Take {taken.name}: {measure.name} {measure.said(taken.test)} on {rows_words(test, 'test')}"
    headline += f"{_to_pooled(taken, standings, measure)}."
    if len(free) == 1:
        return Choice(taken, (taken,), headline, "Nothing else that could be recommended stands beside it.")
    reason = _reason(taken, best, tied, rows, known=top.error is not None)
    if not validated:
        reason += " These rows have chosen it, so that they no longer test it: keep validation rows."
    return Choice(taken, tuple(tied), headline, reason)


def _reason(taken: Contender, best: Contender, tied: Sequence[Contender], rows: str, *, known: bool) -> str:
    if not known:
        return f"It has the best value on {rows}; no interval is known, so that small differences may be chance."
    if len(tied) == 1:
        return f"On {rows} it is ahead of every other by more than the interval of the difference."
    apart = f"{_together(taken, best, tied)} cannot be told apart on {rows}"
    if taken is best:
        return f"{apart}; {taken.name} has the best value there."
    assert taken.sent is not None and best.sent is not None  # it sends less
    sends = f"sends {_share(taken.sent, best.sent)} {best.name}'s bytes"
    return f"{apart}; {taken.name}, within one standard error of the best, {sends}."


def _together(taken: Contender, best: Contender, tied: Sequence[Contender]) -> str:
    names = list(dict.fromkeys([taken.name, best.name, *(one.name for one in tied)]))
    if len(names) <= 4:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:2])} and {len(names) - 2} others"


def _share(part: float, whole: float) -> str:
    """A ratio in words: `a tenth of`, `60% of`, or `about as much as`."""
    if not part:
        return "none of"
    times = whole / part
    if times < 1.75:
        return f"{part / whole:.0%} of"
    nearest = min(_PARTS, key=lambda number: abs(math.log(number / times)))
    return f"about {_PARTS[nearest]} of" if times < 30 else f"1/{times:.0f} of"


def _nothing(standings: Sequence[Contender], test: int) -> str:
    ran = [each for each in standings if each.test is not None and not each.reference]
    if ran:
        return (
            f"None is shown to be better than chance on the {rows_words(test, 'test')}: give more rows, or longer runs."
        )
    if any(each.cause for each in standings):
        return "None has ended well: the causes are below."
    return "Nothing has ended yet."


def beside(taken: Contender, other: Contender, measure: Measure) -> str:
    """The recommended one compared with another: `2.1 points worse`, if the difference is significant on test rows."""
    assert taken.test is not None and other.test is not None
    if not taken.test.differs(other.test):
        return "not told apart"
    gap = abs(taken.test.value - other.test.value) * (100 if measure.metric in SHARES else 1)
    return (
        f"{measure.gap(gap).lstrip('+')} {'better' if measure.better(taken.test.value, other.test.value) else 'worse'}"
    )


def _to_pooled(taken: Contender, standings: Sequence[Contender], measure: Measure) -> str:
    """Its distance from the best reference, which has all tables or none."""
    known = [one for one in standings if one.reference and one.test is not None]
    if not known:
        return ""
    best = measure.best(known, _value)
    found = beside(taken, best, measure)
    said = "not told apart from" if found == "not told apart" else f"{found} than"
    return f", {said} {best.name} ({measure.say(_value(best))})"


_TEMPLATES = Path(__file__).parent / "templates"
_GREY = 6
_EMPTY = ("", "-", None)


@dataclass(frozen=True)
class ValueTable:
    """A table; columns without a value are left out.

    Args:
        words: numbers of left-aligned columns, the first of which names the row.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    words: Sequence[int] = (0,)

    def full(self, columns: Collection[int] | None = None) -> ValueTable:
        """The table without empty columns; only `columns`, if given."""
        wanted = range(len(self.head)) if columns is None else columns
        kept = [at for at in wanted if any(row[at] not in _EMPTY for row in self.rows)]
        rows = [[row[at] for at in kept] for row in self.rows]
        return ValueTable([self.head[at] for at in kept], rows, [kept.index(at) for at in self.words if at in kept])

    def turned(self) -> ValueTable:
        """The transposed table, for few rows of many columns."""
        head, *rows = zip(self.head, *self.rows, strict=True)
        return ValueTable(["", *map(str, head[1:])], rows)


@dataclass(frozen=True)
class Figure:
    title: str
    chart: Html


@dataclass(frozen=True)
class ComparisonPage:
    """A comparison and its page.

    Args:
        each: protocols or runs, and references.
        facts: names and values by section.
        more, more_title: further charts, and the title of their section.
        test, validation: number of these rows, 0 if unknown.
        apart: why values of different rows allow no recommendation; "" if rows are the same.
    """

    title: str
    measure: Measure
    test: int
    validation: int
    each: Sequence[Contender]
    values: ValueTable
    notes: Sequence[str] = ()
    facts: Sequence[tuple[str, Sequence[tuple[str, object]]]] = ()
    more: Sequence[Figure] = ()
    more_title: str = "Course of training"
    apart: str = ""

    @property
    def choice(self) -> Choice:
        if self.apart:
            return Choice(None, (), self.apart, "")
        return choose(self.each, self.measure, test=self.test, validation=self.validation)

    @property
    def ranked(self) -> list[Contender]:
        """All contenders with a value, and references, best first."""
        shown = [one for one in self.each if one.stands or (one.reference and one.test is not None)]
        return sorted(shown, key=lambda one: -_value(one) if self.measure.up else _value(one))

    def html(self) -> str:
        return self._render(short=False)

    def fragment(self) -> str:
        """The first screen, for notebooks."""
        return in_notebook(self._render(short=True))

    def _render(self, *, short: bool) -> str:
        choice, full = self.choice, self.values.full()
        content = {
            "title": self.title, "short": short, "choice": choice,
            "cards": self._cards(choice), "chart": self._chart(choice), "charts": self._charts(),
            "values": full, "apart": self.set_apart, "notes": self.notes,
            "more_title": self.more_title, "facts": self.facts, "more": self.more,
            "measure": self.measure.title, "rows": rows_words(self.test, "test"),
        }  # fmt: skip
        return render("comparison.html", content, beside=_TEMPLATES)

    def _chart(self, choice: Choice) -> Html:
        if not (shown := self.ranked):
            return Html()
        bars = []
        for one in shown:
            assert one.test is not None  # of all that are ranked
            half, taken = one.test.half, one is choice.taken
            protected = "" if one.reference else one.protection.words
            about = "; ".join(filter(None, ("recommended" if taken else "", one.about, protected)))
            bars.append(Bar(
                one.name, one.test.value, self.measure.said(one.test),
                None if one.reference or not half else one.test.value - half,
                None if one.reference or not half else self._most(one.test.value + half),
                _GREY if one.reference else one.protection.colour, about=about, line=one.reference, best=taken,
            ))  # fmt: skip
        intervals = " with 95% intervals" if any(one.test and one.test.half for one in shown) else ""
        caption = f"{self.measure.title} on {rows_words(self.test, 'test')}{intervals}, best first"
        return row_chart(bars, Axis(self.measure.name, self.measure.say), caption=caption, dots=True)

    def _most(self, value: float) -> float:
        shares = self.measure.metric in ("accuracy", "balanced_accuracy", "auc", "average_precision", "f1")
        return min(value, 1.0) if shares else value

    def _charts(self) -> list[Figure]:
        """Quality against bytes, seconds and epsilon, if at least two contenders have them."""
        stand = [one for one in self.ranked if one.stands]
        lines = {one.name: _value(one) for one in self.ranked if one.reference}
        found = []
        for name, key, say in (
            ("bytes of training", "sent", amount),
            ("seconds of computing", "seconds", seconds),
            ("epsilon: less is more privacy", "epsilon", lambda value: f"{value:.3g}"),
        ):
            dots = [
                Dot(one.name, cost, _value(one), colour=one.protection.colour)
                for one in stand
                if (cost := getattr(one, key))
            ]
            if len({dot.x for dot in dots}) > 1:
                title = f"{self.measure.title} against {name.partition(':')[0]}"
                up = Axis(self.measure.name, self.measure.say)
                drawn = scatter_chart(dots, Axis(name, say), up, title=title, references=lines)
                found.append(Figure(title, drawn))
        return found

    def _cards(self, choice: Choice) -> list[Mapping[str, object]]:
        taken = choice.taken
        if taken is None:
            return []
        references = [one for one in self.each if one.reference and one.test is not None]
        said = [f"{one.name} {self.measure.said(one.test)}: {beside(taken, one, self.measure)}" for one in references]
        cards = [tile(f"{taken.name}, recommended", self.measure.said(taken.test), taken.about, *said, tone="good")]
        if taken.sent is not None:
            more = f"{seconds(taken.seconds)} of computing" if taken.seconds else ""
            cards.append(tile("Sent in training", amount(taken.sent), more, *self._most_sent(taken)))
        sees = [f"The server sees {taken.sees('server')}.", f"A party sees {taken.sees('party')}."]
        tone = "warn" if taken.protection.kind == "nothing" else "good"
        protected = tile("Protection", taken.protection.words, *self._protected(taken), *sees, tone=f"wide {tone}")
        return [*cards, protected]

    def _most_sent(self, taken: Contender) -> Iterable[str]:
        others = [one for one in self.each if one.stands and one.sent and one is not taken]
        if others:
            most = max(others, key=lambda one: one.sent or 0.0)
            yield f"most: {most.name} {amount(most.sent or 0.0)}"

    def _protected(self, taken: Contender) -> Iterable[str]:
        """The best protected contender by validation rows, if the recommended one has no mechanism."""
        found = [one for one in self.each if one.stands and one.protection.kind != "nothing" and not one.gives_labels]
        if taken.protection.kind != "nothing" or not found:
            return
        best = self.measure.best(found, _chosen_by)
        more = f", {amount(best.sent)}" if best.sent else ""
        yield f"With protection ({best.protection.words}): {best.name}, {self.measure.said(best.test)}{more}."

    @property
    def set_apart(self) -> list[tuple[str, str, str]]:
        """Name, value and cause of excluded contenders."""
        return [(one.name, self.measure.said(one.test), one.cause) for one in self.each if one.cause]


def _value(one: Contender) -> float:
    assert one.test is not None
    return one.test.value


def _chosen_by(one: Contender) -> float:
    return _value(one) if one.validation is None else one.validation.value
