"""Sentences of the pages: how values are judged, and the counts."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.common.runtime.environment import describe_environment
from colonnade.reproduction.papers.counts import Count, count
from colonnade.reproduction.papers.paper_comparison import TableStanding, with_all

_WIRE = "processes over the wire, so that bytes count evaluations, and what the wire adds"
_VIRTUAL = "the virtual clock: the same code, without a network"
_RULES = (
    "A result *agrees* with the paper if the mean of its seeds is, on both sides, within a point of accuracy, a "
    "quarter of a point of deviation between classes, or a hundredth of bytes and seconds, plus half of the last "
    "digit that the paper prints. Otherwise it is *better* or *worse* than the paper; where the paper's point is "
    "that a number is low, it *differs* and counts as worse. The *order* of the paper is counted separately, since "
    "methods that it compares itself with may be better here, too: of all pairs of a column that the paper "
    "separates by more than this slack, one *holds* or is *reversed* if the 95 % interval of the difference, paired "
    "by seed, excludes 0. Otherwise it is *open*, and so is every pair of one seed. Claims are decided in the same "
    "way; a lead that a claim asks for is ours unless the claim quotes the paper's. Numbers that follow from shapes, "
    "such as bytes a round, are *accounting*, and so are bytes to an accuracy that all seeds had at the first look. A "
    "number that is printed again is a *repeat*. Neither is counted as a result, nor is a number that is *shown* only, "
    "because a setting was fitted to it or the larger class alone comes as far. Ours are means over seeds with their "
    "95 % interval (Student's t, cut where values end) in brackets; ± is the paper's own deviation."
)


def how(seeds: int, *, quick: bool, wire: bool) -> str:
    """What the numbers of a page are, and how they are judged, as a paragraph."""
    command = "colonnade reproduce --quick" if quick else "colonnade reproduce"
    system = describe_environment()
    return (
        f"Written by `{command} --seeds {seeds}` ({_WIRE if wire else _VIRTUAL}; {system['system']}, "
        f"torch {system['torch']}). {_RULES}"
    )


def total_words(tables: Sequence[TableStanding], seeds: int) -> str:
    """The counts of these tables, and of results with so many seeds, in a few sentences."""
    found, whole = count(tables), with_all(tables, seeds)
    return " ".join(filter(None, [*_counted(found), _few(tables, whole, seeds)]))


def _counted(found: Count) -> list[str]:
    waiting = f", {found.waiting} not run yet" if found.waiting else ""
    agree, shapes = found.accounting[1], found.accounting[0]
    return [
        f"Of {found.listed} results, {found.agrees} agree with the paper, {found.better} are better, {found.worse} "
        f"worse{waiting}." if found.listed else "",
        f"Of {found.pairs.listed} pairs that the paper separates, {found.pairs.words}." if found.pairs.listed else "",
        f"Of {found.claims.listed} claims, {found.claims.words}." if found.claims.listed else "",
        f"Of {found.own.listed} claims beyond the paper, {found.own.words}." if found.own.listed else "",
        f"Accounting: {agree} of {shapes} agree." if shapes else "",
        f"Repeats: {found.repeats}." if found.repeats else "",
        f"{found.excluded} cells of the papers are left out, for reasons given with them." if found.excluded else "",
    ]  # fmt: skip


def _few(tables: Sequence[TableStanding], whole: int, seeds: int) -> str:
    """Says that some have fewer seeds."""
    done = sum(bool(one.ours) for table in tables for one in table.cells)
    done += sum(all(one.ours.values()) for table in tables for one in table.claims)
    if whole >= done:
        return ""
    return f"{whole} of the {done} cells and claims that were run have all {seeds} seeds yet, the others fewer."
