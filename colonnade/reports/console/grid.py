"""Console tables: aligned columns without lines between them; no word is cut."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rich.cells import cell_len
from rich.text import Text

from colonnade.common.text import escaped_lines

Cell = str | Text
"""Text of a table; a `Text` has styles of its own."""

_GAP = 2  # spaces between two columns
_PROSE = 100  # characters of a line of sentences, where no terminal says how many
_HEAD = "bold"
_WORD = re.compile(r"\s*\S+\s*|\s+")
_NUMBER = re.compile(r"[-+±<>≤]?\d[\d.,]*( ?(%|B|kB|MB|GB|TB|s))?( ±[\d.,]+)?|-|")


class Grid:
    """A table. Columns of numbers are aligned at the right.

    Args:
        heads: column heads; empty for a table without a head.
        prose: True if cells are sentences, which are broken into lines in a pipe too.
    """

    def __init__(self, *heads: str, title: str = "", note: str = "", prose: bool = False) -> None:
        self.title, self.note, self._prose = title, note, prose
        self._head = [Text(each, style=_HEAD) for each in heads]
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: Cell, style: str = "") -> None:
        row = [Text(escaped_lines(cell)) if isinstance(cell, str) else cell.copy() for cell in cells]
        for cell in row:
            cell.stylize_before(style)
        self._rows.append(row)

    @property
    def rows(self) -> int:
        return len(self._rows)

    def lines(self, room: int | None) -> Iterator[Text]:
        """Lines of the table; where the columns do not fit, every row is a block of lines.

        Args:
            room: characters of a line; None for any number.
        """
        room = _PROSE if room is None and self._prose else room
        every = [self._head, *self._rows] if self._head else self._rows
        columns = list(zip(*every, strict=True))
        numbers = [all(_NUMBER.fullmatch(cell.plain) for cell in column[bool(self._head) :]) for column in columns]
        widths = [max(map(_width, column)) for column in columns]
        gaps = _GAP * (len(columns) - 1)
        if room is not None and sum(widths) + gaps > room:
            least = [max(map(_longest, column)) for column in columns]
            if sum(least) + gaps > room:
                yield from self._blocks(room)
                return
            _shrink(widths, least, room - gaps)
        for row in every:
            broken = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            for parts in zip_longest(*broken, fillvalue=Text()):
                line = Text()
                for part, width, number in zip(parts, widths, numbers, strict=True):
                    free = " " * (width - part.cell_len)
                    line.append_text(Text(free) + part if number else part + free).append(" " * _GAP)
                line.rstrip()
                yield line

    def _blocks(self, room: int) -> Iterator[Text]:
        """Every row as lines: its first cell, then the others, each behind its head."""
        left = max((title.cell_len for title in self._head[1:]), default=0)
        for first, *others in self._rows:
            yield from wrapped(Text(first.plain, style=_HEAD), room)
            for title, cell in zip_longest(self._head[1:], others, fillvalue=Text()):
                for place, part in enumerate(wrapped(cell, room - left - 2 * _GAP)):
                    start = title.plain if not place else ""
                    yield Text(" " * _GAP + start.ljust(left) + " " * _GAP) + part


def wrapped(text: Text, width: int) -> list[Text]:
    """A text in lines that break between words; a longer word has its own line."""
    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        breaks, used = [], 0
        for found in _WORD.finditer(line.plain):
            if used and used + cell_len(found[0].rstrip()) > width:
                breaks.append(found.start())
                used = 0
            used += cell_len(found[0])
        for part in line.divide(breaks):
            part.rstrip()
            lines.append(part)
    return lines


def _shrink(widths: list[int], least: Sequence[int], room: int) -> None:
    """Narrows the widest columns until all fit."""
    while sum(widths) > room:
        place = max((place for place, width in enumerate(widths) if width > least[place]), key=widths.__getitem__)
        widths[place] -= 1


def _width(cell: Text) -> int:
    return max(map(cell_len, cell.plain.split("\n")))


def _longest(cell: Text) -> int:
    """Width of the longest word; a number and its unit count as one."""
    words = [cell.plain] if _NUMBER.fullmatch(cell.plain) else cell.plain.split()
    return max(map(cell_len, words), default=0)
