"""One frame for every page: a template, one style sheet, and a policy that loads nothing from elsewhere.

HTML made in Python is `Html`: everything else is escaped.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from colonnade.common.text import escaped_lines


class Html(str):
    """Text that is HTML already; templates do not escape it."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def text(value: object) -> Html:
    return value if isinstance(value, Html) else Html(written(str(value)))


def written(value: str) -> str:
    """Escapes a text for HTML and SVG: no markup, no invisible characters, no change of writing direction."""
    return escape(escaped_lines(value))


_OWN = Path(__file__).parent / "templates"


def render(
    template: str,
    values: dict[str, Any],
    *,
    beside: Path | None = None,
    script: str = "",
    again: float = 0,
    live: bool = False,
) -> str:
    """Returns the page that a template makes of `values`; every value but `Html` is escaped.

    Args:
        template: file in the folder `beside`, or one of this folder; it extends base.html and imports parts.html.
        values: the template's variables; `title` is also the first heading. A missing one is an error.
        beside: folder of the caller's templates.
        script: JavaScript, whose digest the page's policy allows; "" for none.
        again: seconds after which a browser reloads the page; 0 for never.
        live: whether the script reloads, and may request the page's own address.
    """
    frame = {
        "policy": policy(script, live=live),
        "style": Html(_style()),
        "script": Html(script),
        "again": f"{again:g}",
        "live": live,
    }
    return _environment((beside, _OWN) if beside else (_OWN,)).get_template(template).render({**frame, **values}) + "\n"


def fragment(template: str, values: dict[str, Any], *, beside: Path = _OWN) -> Html:
    """Returns a part of a page, for notebooks or for a page assembled in Python."""
    return Html(_environment((beside, _OWN)).get_template(template).render(values))


def in_notebook(page: str) -> str:
    """A page in its own frame, as high as its content, isolated from the notebook's styles."""
    fit = "this.style.height = this.contentDocument.documentElement.scrollHeight + 'px'"
    return f'<iframe srcdoc="{escape(page)}" onload="{fit}" style="width: 100%; height: 40em; border: 0"></iframe>'


def tile(title: str, value: str, *lines: str, tone: str = "") -> dict[str, Any]:
    """A card of the template's macro `cards`; empty lines are left out.

    Args:
        tone: "", good, warn or bad.
    """
    return {"title": title, "value": value, "lines": [line for line in lines if line], "tone": tone}


def policy(script: str, *, live: bool = False) -> str:
    """Content-Security-Policy of a page: only its own style and this script, no loading."""
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"; script-src 'sha256-{digest}'" if script else ""
    own = "; connect-src 'self'; img-src data:" if live else ""  # an empty icon, so that browsers do not request one
    return f"default-src 'none'; style-src 'unsafe-inline'{allowed}{own}; base-uri 'none'; form-action 'none'"


def anchor(title: str) -> str:
    """Link fragment of the section with this title."""
    return re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")


@lru_cache
def script(name: str) -> str:
    return (_OWN / name).read_text(encoding="utf-8")


@lru_cache
def _style() -> str:
    return script("style.css")


@lru_cache
def _environment(folders: Sequence[Path]) -> Environment:
    # `finalize` escapes before Jinja does, since a page shows no invisible character either.
    made = Environment(
        loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined, finalize=_escaped,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters["anchor"] = anchor
    return made


def _escaped(value: object) -> Html:
    return Html(value) if hasattr(value, "__html__") else text(value)
