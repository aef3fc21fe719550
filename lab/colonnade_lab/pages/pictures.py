"""The pictures of a table: one for cells in per cent, one each for those in MB and in MiB, and one for its claims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from colonnade.reports.plots import as_file
from colonnade_lab.pages.drawings import bars, dots, orders
from colonnade_lab.papers.measures import unit
from colonnade_lab.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding

_BYTES = ("MB", "MiB")


@dataclass(frozen=True)
class Picture:
    """A picture as a separate file; `about` follows the table's name and is "" for the cells in per cent."""

    file: str
    about: str
    text: str


def pictures(paper: str, standing: TableStanding) -> Iterator[Picture]:
    """Yields pictures of what was run."""
    file, name, title = f"{paper}-{standing.name}", f"{paper}/{standing.name}", standing.table.title
    if cells := [one for one in _run(standing, "%") if math.isfinite(one.mean)]:
        yield Picture(f"{file}.svg", "", as_file(dots(f"{name}: {title}", cells)))
    for sign in _BYTES:
        if cells := _run(standing, sign):
            drawn = bars(f"{name}, in {sign}: {title}", cells, sign)
            yield Picture(f"{file}-{sign.lower()}.svg", f", in {sign}", as_file(drawn))
    if claims := [one for one in standing.claims if _comparable(one)]:
        drawn = orders(f"{name}, what it says: {title}", claims)
        yield Picture(f"{file}-claims.svg", ", what it says", as_file(drawn))


def _run(standing: TableStanding, sign: str) -> list[CellStanding]:
    return [one for one in standing.cells if unit(one.cell.measure) == sign and not math.isnan(one.mean)]


def _comparable(one: ClaimStanding) -> bool:
    """True if there are values, and all share one unit."""
    some = any(not math.isnan(value) for value in one.values.values())
    return some and len({unit(measure) for measure in one.claim.measures.values()}) == 1
