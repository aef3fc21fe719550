"""A whole self-contained page, its sections and its tables."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence

from colonnade.reports.html.markup import Html, joined, tag
from colonnade.reports.html.style import STYLE


class PageSection(Html):
    """A part of a page under its own heading; `anchor` is the fragment of links to it."""

    __slots__ = ("anchor", "heading")

    heading: str
    anchor: str


def frame(title: str, inside: Iterable[Html], script: str = "", again: float = 0, *, live: bool = False) -> str:
    """Returns the page. Its policy allows no loading and no script but this one, whatever the content.

    Args:
        title: also the first heading.
        script: JavaScript; "" for none.
        again: seconds after which a browser reloads the page; 0 for never.
        live: whether the script reloads, and may request the page's own address; without JavaScript the browser
            reloads.
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
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    own = "; connect-src 'self'; img-src data:" if live else ""  # an empty icon, so that browsers do not request one
    return f"default-src 'none'; style-src 'unsafe-inline'{allowed}{own}; base-uri 'none'; form-action 'none'"


def section(title: str, *inside: object) -> Html:
    """A part of the page under a heading; nothing if it is empty."""
    kept = [part for part in inside if part]
    if not kept:
        return Html()
    anchor = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")
    made = PageSection(tag("section", tag("h2", title), *kept, id=anchor) + "\n")
    made.heading, made.anchor = title, anchor
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
    """A table with right-aligned numbers, which scrolls on narrow screens.

    Args:
        rows: cells; everything but `Html` is escaped.
        words: left-aligned columns of text; the first of them names the row.
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
    """Names and values, one per line."""
    lines = [tag("tr", tag("th", name, scope="row", class_="word"), tag("td", value, class_="word"))
             for name, value in rows]  # fmt: skip
    return tag("table", *lines, class_="facts") if lines else Html()


def _cell(at: int, cell: object, words: Sequence[int]) -> Html:
    if words and at == words[0]:
        return tag("th", cell, scope="row", class_="word")
    return tag("td", cell, class_="word" if at in words else None)
