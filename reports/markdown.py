"""Values in Markdown: whatever stands in a page is text, and never markup, a link or HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from colonnade.common.escaped import escaped_lines

_MARKUP = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is none
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_ADDRESSES = re.compile(r"(?<=[a-z])(:)(?=//)|(?<=www)(\.)|(?<=\S)(@)(?=\S)|(?<=mailto)(:)|(?<=xmpp)(:)", re.IGNORECASE)


def plain(value: object) -> str:
    """A value in one line, in which nothing is markup, no address becomes a link, and no character is invisible."""
    line = escaped_lines(" ".join(str(value).split()))
    marked = _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)
    return _ADDRESSES.sub(lambda found: f"&#{ord(found[0])};", marked)


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table."""
    lines = [[plain(cell) for cell in head], ["---" for _ in head], *([plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
