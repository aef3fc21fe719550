"""Escapes values in Markdown: they are text, never markup, links or HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.common.escaped import plain


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [[plain(cell) for cell in head], ["---" for _ in head], *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
