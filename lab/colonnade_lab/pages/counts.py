"""Counts of results, orders and claims, and how pages say them: in sentences, and in tables as the paper has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from colonnade.common.run.environment import describe_environment
from colonnade_lab.papers.intervals import Outcome
from colonnade_lab.papers.measures import Verdict, unit
from colonnade_lab.papers.paper_comparison import (
    CellStanding,
    ClaimStanding,
    Pair,
    TableStanding,
    difference_words,
    with_all,
)


@dataclass(frozen=True)
class Tally:
    holds: int
    short: int
    reversed: int
    open: int
    waiting: int

    @property
    def listed(self) -> int:
        return self.holds + self.short + self.reversed + self.open + self.waiting

    @property
    def words(self) -> str:
        """`12 hold, 3 are reversed, 2 open`."""
        said = [f"{self.holds} {'holds' if self.holds == 1 else 'hold'}"]
        said += [f"{self.short} {'is' if self.short == 1 else 'are'} not reached"] if self.short else []
        said += [f"{self.reversed} {'is' if self.reversed == 1 else 'are'} reversed", f"{self.open} open"]
        said += [f"{self.waiting} not run yet"] if self.waiting else []
        return ", ".join(said)


@dataclass(frozen=True)
class Verdicts:
    """Numbers of results by verdict; `differs` counts those where neither direction is better."""

    agrees: int
    better: int
    worse: int
    differs: int
    undecided: int
    waiting: int

    @property
    def listed(self) -> int:
        return self.agrees + self.better + self.worse + self.differs + self.undecided + self.waiting

    @property
    def words(self) -> str:
        """`12 agree with the paper, 3 are better, 2 worse, 20 undecided`."""
        said = [
            f"{self.agrees} {'agrees' if self.agrees == 1 else 'agree'} with the paper",
            f"{self.better} {'is' if self.better == 1 else 'are'} better",
            f"{self.worse} worse",
        ]
        said += [f"{self.differs} {'differs' if self.differs == 1 else 'differ'} otherwise"] if self.differs else []
        said += [f"{self.undecided} undecided"]
        said += [f"{self.waiting} not run yet"] if self.waiting else []
        return ", ".join(said)


@dataclass(frozen=True)
class Count:
    """Verdicts of tables.

    Args:
        proposals: results of the papers' own methods.
        others: results of the methods that the papers compare with.
        pairs: orders of results that the paper separates.
        claims: of the paper; `own` counts ours, beyond the paper.
        settings: claims that one of our settings decides.
        accounting: cells that follow from shapes, and how many of them agree.
        repeats: cells that are printed elsewhere too.
        excluded: cells that are not run.
    """

    proposals: Verdicts
    others: Verdicts
    pairs: Tally
    claims: Tally
    own: Tally
    settings: int
    accounting: tuple[int, int]
    repeats: int
    excluded: int

    @property
    def listed(self) -> int:
        """Number of results, each counted once."""
        return self.proposals.listed + self.others.listed


def count(tables: Sequence[TableStanding]) -> Count:
    cells = [one for table in tables for one in table.cells]
    results = [one for one in cells if one.cell.kind == "result"]
    shapes = [one.verdict for one in cells if one.cell.kind == "accounting"]
    claims = [one for table in tables for one in table.claims]
    return Count(
        proposals=_verdicts(one.verdict for one in results if one.proposal),
        others=_verdicts(one.verdict for one in results if not one.proposal),
        pairs=tally(pair.outcome for table in tables for pair in table.pairs),
        claims=tally(one.outcome for one in claims if one.claim.of == "paper"),
        own=tally(one.outcome for one in claims if one.claim.of == "ours"),
        settings=sum(one.claim.of == "setting" for one in claims),
        accounting=(len(shapes), shapes.count("agrees")),
        repeats=sum(one.cell.kind == "repeat" for one in cells),
        excluded=sum(out.cells for table in tables for out in table.table.excluded),
    )


def tally(outcomes: Iterable[Outcome | None]) -> Tally:
    found = list(outcomes)
    counted = (found.count(each) for each in ("holds", "not reached", "reversed", "open", None))
    return Tally(*counted)


def _verdicts(verdicts: Iterable[Verdict | None]) -> Verdicts:
    found = list(verdicts)
    counted = (found.count(each) for each in ("agrees", "better", "worse", "differs", "undecided", None))
    return Verdicts(*counted)


_WIRE = "processes over the wire, so that bytes count evaluations, and what the wire adds"
_VIRTUAL = "the virtual clock: the same code, without a network"
_RULES = (
    "Ours are means over seeds with their 95 % interval in brackets (Student's t, cut where values end; no deviation "
    "between seeds is taken to be below the binomial error of the test rows, or the distance between two looks); ± "
    "is the paper's own deviation. A result *agrees* with the paper if the whole interval is within a point of "
    "accuracy, a quarter of a point of deviation between classes, or a hundredth of bytes and seconds, plus half of "
    "the last digit that the paper prints. It is *better* or *worse* if the whole interval is outside on that side, "
    "and *differs* where neither direction is better. All else is *undecided*, and so is all of one seed. Results of "
    "the paper's own method are counted apart from those of methods that it compares itself with: that these are "
    "better here refutes the paper's margin and is no success. The *order* of the paper is counted separately: of "
    "all pairs of a column that the paper separates by more than this slack, one *holds* or is *reversed* if the "
    "interval of the difference, paired by seed, excludes 0; otherwise it is *open*. Claims are decided in the same "
    "way; one whose lead is there but shorter than what it asks for is *not reached*. A lead that a claim asks for "
    "is ours unless the claim quotes the paper's. Numbers that follow from shapes, such as bytes a round, are "
    "*accounting*, which one seed decides, and so are bytes to an accuracy that all seeds had at the first look. A "
    "number that is printed again is a *repeat*. Neither is counted as a result, nor is a number that is *shown* "
    "only, because a setting was fitted to it, a setting of ours that is not the paper's decides it, or the larger "
    "class alone comes as far."
)


def how(seeds: int, *, quick: bool, wire: bool) -> str:
    command = "colonnade reproduce --quick" if quick else "colonnade reproduce"
    system = describe_environment()
    return (
        f"Written by `{command} --seeds {seeds}` ({_WIRE if wire else _VIRTUAL}; {system['system']}, "
        f"torch {system['torch']}). {_RULES}"
    )


def total_words(tables: Sequence[TableStanding], seeds: int) -> str:
    found, whole = count(tables), with_all(tables, seeds)
    return " ".join(filter(None, [*_counted(found), _few(tables, whole, seeds)]))


def _counted(found: Count) -> list[str]:
    agree, shapes = found.accounting[1], found.accounting[0]
    return [
        f"Of {found.proposals.listed} results of the papers' own methods, {found.proposals.words}."
        if found.proposals.listed else "",
        f"Of {found.others.listed} results of methods that they compare themselves with, {found.others.words}."
        if found.others.listed else "",
        f"Of {found.pairs.listed} pairs that the paper separates, {found.pairs.words}." if found.pairs.listed else "",
        f"Of {found.claims.listed} claims, {found.claims.words}." if found.claims.listed else "",
        f"Of {found.own.listed} claims beyond the paper, {found.own.words}." if found.own.listed else "",
        f"Claims that a setting of ours decides, which is not the paper's: {found.settings}." if found.settings else "",
        f"Accounting: {agree} of {shapes} agree." if shapes else "",
        f"Repeats: {found.repeats}." if found.repeats else "",
        f"{found.excluded} cells of the papers are left out, for reasons given with them." if found.excluded else "",
    ]  # fmt: skip


def _few(tables: Sequence[TableStanding], whole: int, seeds: int) -> str:
    done = sum(bool(one.ours) for table in tables for one in table.cells)
    done += sum(all(one.ours.values()) for table in tables for one in table.claims)
    if whole >= done:
        return ""
    return f"{whole} of the {done} cells and claims that were run have all {seeds} seeds yet, the others fewer."


MARKS: Mapping[str | None, str] = {
    "agrees": "agrees", "better": "better", "worse": "**worse**", "differs": "**differs**", "undecided": "*undecided*",
    "holds": "holds", "not reached": "**not reached**", "reversed": "**reversed**", "open": "*open*", None: "",
}  # fmt: skip
"""Verdicts and outcomes on a page; nothing where nothing was run."""


def cells(found: Sequence[CellStanding]) -> list[str]:
    if not found:
        return []
    lines = ["| | | the paper | ours | seeds | |", "|---|---|---|---|---|---|"]
    for one in found:
        sign = unit(one.cell.measure)
        lines.append(
            f"| {one.cell.row} | {one.cell.column} | {one.paper_words} {sign} | {one.words} | {len(one.ours)} | "
            f"{said(one)} |"
        )
    return [*lines, ""]


def said(one: CellStanding) -> str:
    kind, verdict = one.cell.kind, one.verdict
    return MARKS[verdict] if kind == "result" or verdict is None else f"{kind}, {MARKS[verdict]}"


def orders(standing: TableStanding) -> list[str]:
    """Counts the pairs that have the paper's order here, and lists those that are reversed or open."""
    if not standing.pairs:
        return []
    found = tally(pair.outcome for pair in standing.pairs)
    lines = [f"The paper's order: of {found.listed} pairs, {found.words}.", ""]
    others = [pair for pair in standing.pairs if pair.outcome in {"reversed", "open"}]
    lines += [
        f"- {pair.outcome}: {_pair(pair)}" for pair in sorted(others, key=lambda pair: pair.outcome != "reversed")
    ]
    return [*lines, ""] if others else lines


def _pair(pair: Pair) -> str:
    sign = unit(pair.above.measure)
    found = difference_words(pair.leads, "points" if sign == "%" else sign)
    return f"{pair.words}: the paper {_paper(pair)}, ours {found or 'without a mean'}"


def _paper(pair: Pair) -> str:
    digits = max(pair.above.digits, pair.below.digits)
    return f"+{pair.above.paper - pair.below.paper:.{digits}f}"


def claims(standing: TableStanding) -> list[str]:
    if not standing.claims:
        return []
    lines = ["| claim | measured | lead, paired by seed | seeds | |", "|---|---|---|---|---|"]
    for each in sorted(standing.claims, key=lambda one: one.claim.of == "ours"):
        lines.append(f"| {claim_words(each)} | {each.words} | {each.lead_words} | {each.seeds} | {_said(each)} |")
    return [*lines, ""]


def _said(one: ClaimStanding) -> str:
    """The outcome; a claim that one of our settings decides is marked as shown only."""
    mark = MARKS[one.outcome]
    return f"shown, {mark}" if mark and one.claim.of == "setting" else mark


def claim_words(one: ClaimStanding) -> str:
    """The claim, with the required lead unless its text has the number, and marked if it is ours."""
    own = {"ours": "beyond the paper: ", "setting": "our setting decides: "}.get(one.claim.of, "")
    sign = unit(next(iter(one.claim.measures.values())))
    number = f"{one.claim.by:g}"
    if not one.claim.by or number in one.claim.text.split():
        return f"{own}{one.claim.text}"
    points = "point" if one.claim.by == 1 else "points"
    return f"{own}{one.claim.text} (by {number} {points if sign == '%' else sign}".rstrip() + ")"
