"""`colonnade compare --on FILE`: protocols on a given configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from colonnade.cli.search.commands import resumable
from colonnade.common.errors import InputError


def compare_on(file: Path, names: tuple[str, ...], *, only_list: bool, seeds: int | None, **options: Any) -> None:
    """Runs what is missing, prints the table, and writes comparison.html, .md, .csv and .json.

    Args:
        file: the configuration.
        names: of protocols; none for all.
        only_list: refused: a comparison on a file always completes its runs.
        seeds: of the runs on test rows; None for one.
        options: of `colonnade.compare`; None for its default.

    Raises:
        ColonnadeError: as `colonnade.compare`.
    """
    from colonnade.search.comparison.compared import compare  # noqa: PLC0415

    if only_list:
        raise InputError("--list with --on: a comparison on a file completes its runs", hint="read comparison.md")
    given = {name: value for name, value in options.items() if value is not None}
    with resumable():
        compare(file, protocols=names or None, seeds=seeds or 1, **given)
