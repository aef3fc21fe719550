"""A whole page, which needs nothing beside itself, its sections and its tables."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence

from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.html.style import STYLE


class PageSection(Html):
    """A part of a page under a heading of its own.

    Attributes:
        heading: as it stands in the page.
        anchor: what a link to it ends in, after the #.
    """

    __slots__ = ("anchor", "heading")

    heading: str
    anchor: str


def frame(title: str, inside: Iterable[Html], script: str = "", again: float = 0, *, live: bool = False) -> str:
    """The page. It may load nothing, and run no script but this one, whatever stands in it.

    Args:
        title: also its first heading.
        inside: what follows.
        script: JavaScript; "" for none.
        again: seconds after which a browser loads the page anew; 0 for never.
        live: whether the script does that, which then may ask the page's own address; a browser without JavaScript
            loads it anew all the same.
    """
    refresh = tag("meta", http_equiv="refresh", content=f"{again:g}") if again else Html()
    head = joined([
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy(script, live=live)),
        tag("noscript", refresh) if live and refresh else refresh,
        tag("link", rel="icon", href="data:,") if live else Html(),
        tag("title", title),
        tag("style", Html(STYLE)),
    ])  # fmt: skip
    body = [tag("main", tag("h1", title), Html("\n"), *inside, data_again=f"{again:g}" if live else None)]
    body += [tag("script", Html(script))] if script else []
    return f"<!doctype html>\n{tag('html', tag('head', head), tag('body', *body), lang='en')}\n"


def policy(script: str, *, live: bool = False) -> str:
    """Content-Security-Policy of a page with this script."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    own = "; connect-src 'self'; img-src data:" if live else ""  # an icon of nothing: else a browser asks for one
    return f"default-src 'none'; style-src 'unsafe-inline'{allowed}{own}; base-uri 'none'; form-action 'none'"


def section(title: str, *inside: object) -> Html:
    """A part of the page under a heading; nothing if there is nothing in it."""
    kept = [part for part in inside if part]
    if not kept:
        return Html()
    anchor = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    made = PageSection(tag("section", tag("h2", title), *kept, id=anchor) + "\n")
    made.heading, made.anchor = title, anchor
    return made


def contents(parts: Iterable[Html]) -> Html:
    """Links to those of a page's parts that have headings."""
    links = [
        tag("li", tag("a", part.heading, href=f"#{part.anchor}")) for part in parts if isinstance(part, PageSection)
    ]
    return Html(tag("nav", tag("ul", *links), aria_label="Contents", id="contents") + "\n") if links else Html()


def folded(title: str, *inside: object) -> Html:
    """Collapsible content."""
    return tag("details", tag("summary", title), *inside)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, words: Sequence[int] = (0,), caption: str = ""
) -> Html:
    """A table with numbers at the right, which scrolls by itself where a screen is too narrow.

    Args:
        head: of its columns.
        rows: cells; what is not `Html` is escaped.
        words: columns that hold words, and stand at the left; the first of them names the row.
        caption: what it shows.
    """
    named = [tag("th", cell, scope="col", class_="word" if at in words else None) for at, cell in enumerate(head)]
    lines = [tag("tr", *(_cell(at, cell, words) for at, cell in enumerate(row))) for row in rows]
    return tag(
        "div",
        tag("table", tag("caption", caption) if caption else Html(), tag("thead", tag("tr", *named)), Html("\n"),
            tag("tbody", joined(lines, "\n"))),
        class_="scroll", tabindex="0", role="region", aria_label=caption or None,
    )  # fmt: skip


def facts(rows: Iterable[tuple[str, object]]) -> Html:
    """Names and what they are, one a line."""
    lines = [tag("tr", tag("th", name, scope="row", class_="word"), tag("td", value, class_="word"))
             for name, value in rows]  # fmt: skip
    return tag("table", *lines, class_="facts") if lines else Html()


def _cell(at: int, cell: object, words: Sequence[int]) -> Html:
    if words and at == words[0]:
        return tag("th", cell, scope="row", class_="word")
    return tag("td", cell, class_="word" if at in words else None)
