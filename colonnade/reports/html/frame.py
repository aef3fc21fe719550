"""Parts of pages that are put together in Python; the frame around them is that of every page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.html.page import anchor, render, script

SCRIPT = script("page.js")
"""Switches axes, and shows values under the pointer; a page can be read without it."""


class PageSection(Html):
    """A part of a page under its own heading; `anchor` is the fragment of links to it."""

    __slots__ = ("anchor", "heading")

    heading: str
    anchor: str


def frame(title: str, inside: Iterable[Html], script: str = "", again: float = 0, *, live: bool = False) -> str:
    """Returns a page of parts that were made in Python: see `render`."""
    content = joined([Html("\n"), *inside])
    return render("base.html", {"title": title, "content": content}, script=script, again=again, live=live)


def section(title: str, *inside: object) -> Html:
    """A part of the page under a heading; nothing if it is empty."""
    kept = [part for part in inside if part]
    if not kept:
        return Html()
    made = PageSection(tag("section", tag("h2", title), *kept, id=anchor(title)) + "\n")
    made.heading, made.anchor = title, anchor(title)
    return made


def contents(parts: Iterable[Html]) -> Html:
    """Links to the parts that have headings."""
    links = [
        tag("li", tag("a", part.heading, href=f"#{part.anchor}")) for part in parts if isinstance(part, PageSection)
    ]
    return Html(tag("nav", tag("ul", *links), aria_label="Contents", id="contents") + "\n") if links else Html()


def folded(title: str, *inside: object) -> Html:
    return tag("details", tag("summary", title), *inside)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, words: Sequence[int] = (0,), caption: str = ""
) -> Html:
    """A table with right-aligned numbers; on a phone each row becomes a block.

    Args:
        rows: cells; everything but `Html` is escaped.
        words: left-aligned columns of text; the first of them names the row.
    """
    named = [tag("th", cell, scope="col", class_="word" if at in words else None) for at, cell in enumerate(head)]
    lines = [tag("tr", *(_cell(at, cell, words, head[at]) for at, cell in enumerate(row))) for row in rows]
    return tag(
        "table", tag("caption", caption) if caption else Html(), tag("thead", tag("tr", *named)), Html("\n"),
        tag("tbody", joined(lines, "\n")), class_="data",
    )  # fmt: skip


def facts(rows: Iterable[tuple[str, object]]) -> Html:
    """Names and values, one per line."""
    lines = [tag("tr", tag("th", name, scope="row", class_="word"), tag("td", value, class_="word"))
             for name, value in rows]  # fmt: skip
    return tag("table", *lines, class_="facts") if lines else Html()


def _cell(at: int, cell: object, words: Sequence[int], head: str) -> Html:
    if words and at == words[0]:
        return tag("th", cell, scope="row", class_="word")
    return tag("td", cell, class_="word" if at in words else None, data_head=head)
