"""Script of pages with curves: switches axes, and shows values under the pointer.

Every picture is in the page; the script shows one of them, and reads the values from it.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence

from colonnade.reports.html.markup import Html, joined, tag

SCRIPT = """
"use strict";
const wire = (root) => {
  for (const axis of root.querySelectorAll("fieldset.axis")) {
    axis.hidden = false;
    axis.addEventListener("change", (event) => {
      for (const picture of root.querySelectorAll("[data-axis]"))
        picture.hidden = picture.dataset.axis !== event.target.value;
    });
  }
  for (const picture of root.querySelectorAll("svg.curves")) {
    const said = picture.closest("figure").querySelector(".said");
    const curves = [...picture.querySelectorAll("polyline")].map((line) => ({
      name: line.querySelector("title").textContent,
      places: line.getAttribute("points").split(" ").map((point) => parseFloat(point)),
      x: line.dataset.x.split(";"),
      y: line.dataset.y.split(";"),
    }));
    const read = (event) => {
      const box = picture.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * picture.viewBox.baseVal.width;
      const near = [];
      for (const curve of curves) {
        let best = 0;
        curve.places.forEach((place, i) => {
          if (Math.abs(place - at) < Math.abs(curve.places[best] - at)) best = i;
        });
        if (Math.abs(curve.places[best] - at) < 25) near.push(`${curve.name} ${curve.y[best]} (${curve.x[best]})`);
      }
      said.textContent = near.join(", ");
    };
    picture.addEventListener("pointermove", read);
    picture.addEventListener("pointerdown", read);
    picture.addEventListener("pointerleave", () => { said.textContent = ""; });
  }
};
wire(document);
"""


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


STYLE = """
:root { color-scheme: light dark; --ink: #222; --paper: #fff; --faint: #5b6570; --rule: #d8dde3; --soft: #eef1f4;
  --note: #fff6e0; --here: #a9cdbd; --away: #7a7f87; --missed: #d1495b; --late: #e0a100; --map: #f7f8fa;
  --link: #0b5394; --wrong: #f2b3bc; --awaited: #8a5a00 }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e7ea; --paper: #15181c; --faint: #9fa8b2; --rule: #39414a;
  --soft: #23292f; --note: #3a3113; --here: #2f6b53; --away: #8f959d; --missed: #f0717f; --late: #f2c14e;
  --map: #1d2228; --link: #86b7ec; --wrong: #7c3040; --awaited: #e0b060 } }
body { max-width: 900px; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper); overflow-wrap: break-word }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem } h3 { font-size: 1rem; margin: .6rem 0 0 }
a { color: var(--link) } :focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
svg { max-width: 100%; height: auto } svg text { fill: var(--ink) } svg line { stroke: var(--rule) }
figure { margin: 0 } figcaption { text-align: center } .faint { color: var(--faint) }
.note { background: var(--note); padding: .6rem 1rem } .headline { font-size: 1.1rem }
.scroll { overflow-x: auto } .scroll > svg { min-width: 640px }
table { border-collapse: collapse; margin: .4rem 0 1rem; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--faint) }
td, th { padding: .15rem .8rem .15rem 0; text-align: right; border-bottom: 1px solid var(--rule); vertical-align: top }
th { font-weight: 600 } td { white-space: nowrap } td.word, th.word { text-align: left; white-space: normal }
details { margin: .6rem 0 } summary { cursor: pointer }
pre { overflow: auto; max-height: 30rem; background: var(--soft); padding: .6rem 1rem; font-size: .85em }
.maps { display: flex; flex-wrap: wrap; gap: 8px } .maps svg { background: var(--map) }
.dot { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin: 0 .3em 0 1em }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 360px), 1fr)); gap: 1rem }
.charts svg { width: 100%; display: block; touch-action: pan-y } .foot { text-align: right }
.said { min-height: 1.5em; margin: 0; font-size: .85em }
.legend { padding: 0; margin: .4rem 0; list-style: none; display: flex; flex-wrap: wrap; gap: 0 1.2rem }
.legend svg { width: 26px; height: 10px; margin-right: .4em }
.axis { border: 0; padding: 0; margin: .4rem 0 } .axis legend { float: left; margin-right: .8em }
.axis label { margin-right: 1em; white-space: nowrap } [hidden] { display: none }
.strip { display: block; width: 100%; height: 14px; background: var(--soft); margin-top: .3em; min-width: 6rem }
@media (min-width: 800px) { .strip { min-width: 19rem } }
.here { fill: var(--here) } .away { fill: var(--away) } .missed { fill: var(--missed) } .late { fill: var(--late) }
.awaited { fill: var(--awaited) } .right, .wrong { display: block; min-width: 2em; padding: 0 .4em }
.right { background: color-mix(in srgb, var(--here) var(--share), transparent) }
.wrong { background: color-mix(in srgb, var(--wrong) var(--share), transparent) }
nav ul { padding: 0; margin: 1rem 0; list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem }
nav a { display: inline-block; padding: .2rem 0 }
html:has(.live) { scroll-padding-bottom: 4rem }
.live { position: sticky; bottom: 0; margin: 2rem 0 0; padding: .5rem 0; background: var(--paper);
  border-top: 1px solid var(--rule) }
.facts td:last-child { overflow-wrap: anywhere }
@media print { details > * { display: block } .axis, nav, .live { display: none } }
"""
