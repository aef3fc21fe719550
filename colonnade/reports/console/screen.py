"""The console: prose, tables, and errors with the remedy on its own line.

Lines in a terminal break between words, so that no column and no word is cut. In a pipe every sentence and every table
row is one line, whatever its length.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import traceback
from typing import IO, Any, NoReturn

from rich.console import Console
from rich.text import Text

from colonnade.common.errors import ColonnadeError, remedy
from colonnade.common.run.plug_ins import user_fault
from colonnade.common.text import escaped_lines
from colonnade.reports.console.grid import Grid, wrapped

INTERRUPTED = 130

_INDENT = 2  # of the second and later lines of a sentence
_ERROR = "error: "


def lenient(stream: IO[str]) -> IO[str]:
    r"""Makes a text stream escape characters that its encoding lacks (`\u2717`) instead of failing."""
    if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
        stream.reconfigure(errors="backslashreplace")
    return stream


class Screen(Console):
    """A console for text from any source: names, reasons, columns, paths.

    It prints no control characters and interprets no markup: `[bold]` and `:bomb:` are printed as they are. Styles are
    passed separately. Characters that the terminal's encoding lacks are escaped.
    """

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)
        self.warnings = 0
        self.drawing = threading.RLock()  # held while something is printed, or the live region below it changes

    def print(self, *objects: Any, **how: Any) -> None:
        with self.drawing:
            super().print(*objects, **how)

    @property
    def file(self) -> IO[str]:
        return lenient(super().file)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    @property
    def room(self) -> int | None:
        """Characters of a line; None in a pipe, which has no limit."""
        return self.width if self.is_terminal else None

    def say(self, line: str, style: str | None = None, *, indent: int = _INDENT) -> None:
        """Prints a sentence. A terminal's lines break between words; later ones are indented."""
        text, room = Text(escaped_lines(line)), self.room
        if room is None or text.cell_len <= room:
            self.print(text, style=style, soft_wrap=True)
            return
        first, *more = wrapped(text, room - indent)
        for part in (first, *(Text(" " * indent) + part for part in more)):
            self.print(part, style=style, soft_wrap=True)

    def point(self, what: str, where: object, style: str | None = None) -> None:
        """Prints a path or a command, which is never broken, so that it can be copied."""
        line = f"{what}: {where}"
        if self.room is not None and len(line) > self.room:
            self.print(f"{what}:", style=style, soft_wrap=True)
            line = f"  {where}"
        self.print(line, style=style, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Prints a warning, and counts it in `warnings`."""
        self.warnings += 1
        self.say(line, "yellow")

    def show(self, table: Grid) -> None:
        """Prints a table that fits, with its title and its note."""
        if table.title:
            self.say(table.title, "bold")
        for line in table.lines(self.room):
            self.print(line, soft_wrap=True)
        if table.note:
            self.say(table.note, "dim", indent=0)

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(escaped_lines(text), **how)


out = Screen()
err = Screen(stderr=True)


def debugging() -> bool:
    return os.environ.get("COLONNADE_DEBUG") == "1"


def show_error(message: str, hint: str = "", who: str = "") -> None:
    text = Text(_ERROR, style="bold red") + Text(
        escaped_lines(f"{who}: {message}" if who else message), style="default"
    )
    room, indent = err.room, " " * len(_ERROR)
    lines = [text] if room is None else wrapped(text, room - len(indent))
    for place, line in enumerate(lines):
        err.print(Text(indent if place else "") + line, soft_wrap=True)
    if hint:
        err.say(f"{indent}{hint}", "dim", indent=len(indent))


def fail(error: BaseException) -> NoReturn:
    """Prints an error and exits with its exit code."""
    if debugging():
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, ColonnadeError):
        show_error(str(error), error.hint)
        raise SystemExit(error.exit_code) from None
    if (fault := user_fault(error)) is not None:
        show_error(str(fault), fault.hint)
        raise SystemExit(fault.exit_code) from None
    show_error(escaped_lines(f"{type(error).__name__}: {error}"), remedy(error))
    raise SystemExit(1) from None
