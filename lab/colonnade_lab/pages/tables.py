"""A table of a paper as Markdown: cells, the paper's order, claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from colonnade_lab.pages.counts import tally
from colonnade_lab.papers.measures import unit
from colonnade_lab.papers.paper_comparison import (
    CellStanding,
    ClaimStanding,
    Pair,
    TableStanding,
    difference_words,
)

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
