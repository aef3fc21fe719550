"""One recommendation with its reason: by validation rows where there are any, and by cost where they do not decide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.reports.standings.contender import SHARES, Contender, Estimate, Measure

_PARTS = {2: "half", 3: "a third", 4: "a quarter", 5: "a fifth", 6: "a sixth", 7: "a seventh", 8: "an eighth",
          9: "a ninth", 10: "a tenth", 20: "a twentieth"}  # fmt: skip


def rows_words(number: int, part: str) -> str:
    return f"{number:,} {part} rows" if number else f"{part} rows"


@dataclass(frozen=True)
class Choice:
    """A recommendation.

    Args:
        taken: what is recommended; None if nothing can be.
        tied: those that the rows do not tell apart from the best, `taken` among them.
        headline: the recommendation, or why there is none.
        reason: why this one.
    """

    taken: Contender | None
    tied: tuple[Contender, ...]
    headline: str
    reason: str


def choose(standings: Sequence[Contender], measure: Measure, *, test: int, validation: int) -> Choice:
    """Recommends what sends least of all within one standard error of the best value on the validation rows.

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

    best = free[0]
    for one in free[1:]:
        best = one if measure.better(judged(one).value, judged(best).value) else best
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
    """`a tenth of`, `60% of`, or `about as much as`."""
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
    """How the recommended stands to another: `2.1 points worse`, if the test rows tell them apart."""
    assert taken.test is not None and other.test is not None
    if not taken.test.differs(other.test):
        return "not told apart"
    gap = abs(taken.test.value - other.test.value) * (100 if measure.metric in SHARES else 1)
    return (
        f"{measure.gap(gap).lstrip('+')} {'better' if measure.better(taken.test.value, other.test.value) else 'worse'}"
    )


def _to_pooled(taken: Contender, standings: Sequence[Contender], measure: Measure) -> str:
    """How far it is from the best reference, which has all tables or none."""
    known = [one for one in standings if one.reference and one.test is not None]
    if not known:
        return ""
    best = known[0]
    for one in known[1:]:
        assert one.test is not None and best.test is not None
        best = one if measure.better(one.test.value, best.test.value) else best
    assert best.test is not None
    found = beside(taken, best, measure)
    said = "not told apart from" if found == "not told apart" else f"{found} than"
    return f", {said} {best.name} ({measure.say(best.test.value)})"
