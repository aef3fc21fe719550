"""Pages in Markdown, made by templates."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

_OWN = Path(__file__).parent / "templates"


def markdown(template: str, folder: Path = _OWN, **values: object) -> str:
    """The text that a template makes of values; a missing one is an error.

    Templates may be broken into lines where the text is not: the filter `line` joins them.
    """
    return _environment(folder).get_template(template).render(values)


@cache
def _environment(folder: Path) -> Environment:
    made = Environment(  # noqa: S701  # Markdown, of our own lists and numbers
        loader=FileSystemLoader((folder, _OWN)), undefined=StrictUndefined, keep_trailing_newline=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters["line"] = lambda text: " ".join(text.split())
    return made
