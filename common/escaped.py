"""Text that somebody else wrote, made harmless for a terminal and short enough to keep."""

from __future__ import annotations

LONGEST = 1000
"""Characters of a text from the network that are kept."""


def escaped(text: str, longest: int = LONGEST) -> str:
    r"""The text in characters that a terminal prints as they are, cut to a length.

    Everything else is written as Python writes it (`\x1b`, `\u202e`): control characters (C0, C1, DEL), line ends,
    characters that change the direction of writing or are invisible, and halves of surrogate pairs.

    Args:
        text: as it came.
        longest: characters of the result, of which the last is `…` where something was left out.
    """
    plain = text[:longest] if len(text) > longest else text
    if not plain.isprintable():
        plain = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in plain)
    return plain if len(text) <= longest and len(plain) <= longest else plain[: longest - 1] + "…"


def escaped_lines(text: str) -> str:
    """The same for a text of our own that may have several lines, and tabs: those stay, and nothing is cut."""
    if text.isprintable():
        return text
    return "".join(one if one in "\n\t" else escaped(one) for one in text)
