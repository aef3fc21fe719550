"""Text for people: untrusted words escaped for a terminal and cut to a maximum length, values in Markdown, numbers."""

from __future__ import annotations

import math
import re

LONGEST = 1000  # characters of a text from the network that are kept

_MARKUP = re.compile(r"[\\`*\[\]<>&|~]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word is none
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_ADDRESSES = re.compile(r"(?<=[a-z])(:)(?=//)|(?<=www)(\.)|(?<=\S)(@)(?=\S)|(?<=mailto)(:)|(?<=xmpp)(:)", re.IGNORECASE)


def escaped(text: str, longest: int = LONGEST) -> str:
    r"""Escapes every character that a terminal does not print literally, and cuts the text to a length.

    Everything else is written as Python writes it (`\x1b`, `\u202e`): control characters (C0, C1, DEL), line ends,
    characters that change the direction of writing or are invisible, and halves of surrogate pairs.

    Args:
        longest: characters of the result, of which the last is `…` where text was cut.
    """
    plain = text[:longest] if len(text) > longest else text
    if not plain.isprintable():
        plain = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in plain)
    return plain if len(text) <= longest and len(plain) <= longest else plain[: longest - 1] + "…"


def escaped_lines(text: str) -> str:
    """As `escaped` for text of our own: keeps line ends and tabs, and cuts nothing."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" else escaped(one) for one in text)


def literal(value: object) -> str:
    """A value in a line of Markdown: nothing is markup, no address becomes a link, and no character is invisible."""
    line = escaped_lines(" ".join(str(value).split()))
    marked = _MARKUP.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), line)
    return _ADDRESSES.sub(lambda found: f"&#{ord(found[0])};", marked)


_SMALLEST = -9  # powers of ten; smaller numbers keep the exponent


def plain(value: float, digits: int = 4) -> str:
    """A number with given digits and without an exponent: 57770.4 -> '57,770', 0.10821 -> '0.1082', 54.3 -> '54.3'."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)))
    if power < _SMALLEST:
        return f"{value:.{digits}g}"
    places = digits - 1 - power
    text = f"{round(value, places):,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
