"""HTML from Python: everything that is not HTML already is escaped."""

from __future__ import annotations

from html import escape

from colonnade.common.escaped import escaped_lines

_VOID = ("input", "link", "meta")


class Html(str):
    """Text that is HTML already; templates take it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def text(value: object) -> Html:
    """Escapes a value for a page."""
    return value if isinstance(value, Html) else Html(written(str(value)))


def written(value: str) -> str:
    """Escapes a text for HTML and SVG: no markup, no invisible characters, no change of writing direction."""
    return escape(escaped_lines(value))


def joined(parts: list[Html], by: str = "") -> Html:
    return Html(by.join(parts))


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An element with its content: `tag("p", "2 < 3", class_="note")`.

    Args:
        inside: content in order; everything but `Html` is escaped.
        attributes: a trailing `_` is dropped, other `_` become `-`; True gives a bare attribute, None and False none.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{written(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" + ("" if name in _VOID else "".join(map(text, inside)) + f"</{name}>"))
