"""The console, and errors as one line with a hint."""

from __future__ import annotations

import io
import os
import sys
import traceback
from typing import IO, Any, NoReturn

from rich.console import Console
from rich.text import Text

from colonnade.common.errors import ColonnadeError
from colonnade.common.escaped import escaped_lines
from colonnade.common.run.user_code import user_fault

INTERRUPTED = 130


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
        super().__init__(markup=False, emoji=False, **how)
        self.warnings = 0

    @property
    def file(self) -> IO[str]:
        return lenient(super().file)

    @file.setter
    def file(self, stream: IO[str]) -> None:
        self._file = stream

    def say(self, line: str, style: str | None = None) -> None:
        """Prints a line that only the terminal breaks, so that it can be copied."""
        self.print(line, style=style, soft_wrap=True)

    def warn(self, line: str) -> None:
        """Prints a warning, and counts it in `warnings`."""
        self.warnings += 1
        self.say(line, "yellow")

    def render_str(self, text: str, **how: Any) -> Text:
        """Renders every printed string, also in tables."""
        return super().render_str(escaped_lines(text), **how)


out = Screen(highlight=False)
err = Screen(stderr=True, highlight=False, soft_wrap=True)


def debugging() -> bool:
    return os.environ.get("COLONNADE_DEBUG") == "1"


def show_error(message: str, hint: str = "", who: str = "") -> None:
    err.print("error:", style="bold red", end=" ")
    err.print(f"{who}: {message}" if who else message)
    if hint:
        err.print(f"       {hint}", markup=False, style="dim")


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
    show_error(escaped_lines(f"{type(error).__name__}: {error}"), "this is a fault of Colonnade: --debug shows where")
    raise SystemExit(1) from None
