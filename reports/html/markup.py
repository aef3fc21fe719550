"""HTML from Python: whatever is not HTML already is escaped on its way in."""

from __future__ import annotations

from html import escape

from colonnade.common.escaped import escaped_lines

_VOID = ("input", "link", "meta")


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Html:
    """A value as it may stand in a page."""
    return value if isinstance(value, Html) else Html(written(str(value)))


def written(value: str) -> str:
    """A text for HTML and SVG: no character of it is markup, invisible, or changes the direction of writing."""
    return escape(escaped_lines(value))


def joined(parts: list[Html], by: str = "") -> Html:
    """Several pieces as one."""
    return Html(by.join(parts))


def tag(name: str, /, *inside: object, **attributes: object) -> Html:
    """An element with what is in it: `tag("p", "2 < 3", class_="note")`.

    Args:
        name: of the element.
        inside: its content in order; what is not `Html` is escaped.
        attributes: `_` at the end is left off, other `_` become `-`; True stands alone, None and False are left out.
    """
    given = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{written(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" + ("" if name in _VOID else "".join(map(text, inside)) + f"</{name}>"))
