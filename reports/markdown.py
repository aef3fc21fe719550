"""Values in Markdown: whatever stands in a page is text, and never markup, a link or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.common.escaped import plain


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    lines = [[plain(cell) for cell in head], ["---" for _ in head], *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
