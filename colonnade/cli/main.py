"""The command line, `colonnade COMMAND`."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from colonnade.cli.commands import COMMANDS, LazyCommands
from colonnade.common.errors import InputError
from colonnade.common.observability.telemetry import VARIABLE, write_to_stderr
from colonnade.common.run.files import keep_private
from colonnade.common.version import VERSION
from colonnade.reports.console.live import shown
from colonnade.reports.console.screen import INTERRUPTED, fail, lenient
from colonnade.reports.console.screen import out as console

app = typer.Typer(
    cls=LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # whose import takes longer than all others
    epilog="Every command takes --debug, which shows tracebacks.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        console.say(f"colonnade {VERSION}")
        raise typer.Exit


@app.callback()
def colonnade(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Vertical federated learning over real machines: labels at a server, columns at parties."""


def _refuse_undecodable(words: Sequence[str]) -> None:
    """Refuses names that are not UTF-8, which files and libraries require for paths."""
    for word, what in ((str(Path.cwd()), "the working directory"), *((word, "this word") for word in words)):
        if not word.isascii() and any("\ud800" <= each <= "\udfff" for each in word):
            raise InputError(
                f"{word!r}: {what} is no text in UTF-8",
                hint="rename it; if it is in UTF-8, set a locale of UTF-8, for example LC_ALL=C.UTF-8",
            )


def completed(words: Sequence[str]) -> list[str]:
    """Gives `--dashboard` without an address its default: Typer's options take a word always or never."""
    made: list[str] = []
    for word, after in zip(words, [*words, ""][1:], strict=True):
        made.append(word)
        if word == "--dashboard" and not (re.fullmatch("[0-9]{1,5}", after) or ":" in after):
            made.append("127.0.0.1:0")
    return made


_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""Typer brings its own Click in some versions; its name is private."""


def _run(words: Sequence[str]) -> NoReturn:
    """Runs a command and exits; wrong words are an InputError with the command's usage."""
    try:
        code = app(words, prog_name="colonnade", standalone_mode=False)
    except typer.Abort:
        raise SystemExit(INTERRUPTED) from None
    except _UsageError as wrong:
        context, said = getattr(wrong, "ctx", None), str(getattr(wrong, "format_message")()).rstrip(".")  # noqa: B009
        if said.startswith("Usage:"):  # a group without a command: its help
            console.print(said, soft_wrap=True)
            raise SystemExit(InputError.exit_code) from None
        where, usage = "colonnade", "`colonnade --help` lists the commands"
        if context is None and (command := next((word for word in words if word in COMMANDS), "")):
            where = f"colonnade {command}"  # an option at the end, without its word
            usage = f"`{where} --help` explains it"
        if context is not None:
            where = context.command_path
            usage = f"{' '.join(context.get_usage().split())}; `{where} --help` explains it"
        raise InputError(f"{where}: {said[:1].lower()}{said[1:]}", hint=usage[:1].lower() + usage[1:]) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        lenient(stream)  # for output of Typer and Python
    # PID 1 of a container receives only signals that it handles.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(INTERRUPTED))
    if "--debug" in sys.argv:
        sys.argv.remove("--debug")
        os.environ["COLONNADE_DEBUG"] = "1"
    try:
        if level := os.environ.get(VARIABLE):
            write_to_stderr(level)
        keep_private()  # before this process or a child writes anything
        _refuse_undecodable(sys.argv[1:])
        with shown(console):
            _run(completed(sys.argv[1:]))
    except Exception as error:  # noqa: BLE001  # the outermost handler prints every error
        fail(error)
