"""The pictures of a table: one of its cells in per cent, one of those in MB and in MiB each, and one of its claims."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from colonnade.reproduction.pages.bars import bars
from colonnade.reproduction.pages.dots import dots
from colonnade.reproduction.pages.orders import orders
from colonnade.reproduction.papers.measures import unit
from colonnade.reproduction.papers.paper_comparison import CellStanding, ClaimStanding, TableStanding

_BYTES = ("MB", "MiB")


@dataclass(frozen=True)
class Picture:
    """A picture as a file of its own.

    Args:
        file: its name.
        about: what of the table it shows, to stand behind the table's name; "" for the cells in per cent.
        text: what is in the file.
    """

    file: str
    about: str
    text: str


def pictures(paper: str, standing: TableStanding) -> Iterator[Picture]:
    """Of what was run; none where there is nothing to draw."""
    file, name, title = f"{paper}-{standing.name}", f"{paper}/{standing.name}", standing.table.title
    if cells := [one for one in _run(standing, "%") if math.isfinite(one.mean)]:
        yield Picture(f"{file}.svg", "", dots(f"{name}: {title}", cells))
    for sign in _BYTES:
        if cells := _run(standing, sign):
            drawn = bars(f"{name}, in {sign}: {title}", cells, sign)
            yield Picture(f"{file}-{sign.lower()}.svg", f", in {sign}", drawn)
    if claims := [one for one in standing.claims if _comparable(one)]:
        yield Picture(f"{file}-claims.svg", ", what it says", orders(f"{name}, what it says: {title}", claims))


def _run(standing: TableStanding, sign: str) -> list[CellStanding]:
    return [one for one in standing.cells if unit(one.cell.measure) == sign and not math.isnan(one.mean)]


def _comparable(one: ClaimStanding) -> bool:
    """Whether a run was run, and all are measured in the unit of one axis."""
    some = any(not math.isnan(value) for value in one.values.values())
    return some and len({unit(measure) for measure in one.claim.measures.values()}) == 1
