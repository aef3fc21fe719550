"""Writes a new folder of text files from templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from colonnade.common.errors import InputError
from colonnade.reports.console.outputs import make_folder, write_text
from colonnade.reports.console.screen import out as console

_TEMPLATES = Path(__file__).parent / "templates"


def fill(template: str, **words: str) -> str:
    """Replaces a template's `$word`s."""
    return Template((_TEMPLATES / template).read_text(encoding="utf-8")).substitute(words)


def refuse_existing(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = "is not empty" if folder.is_dir() else "is a file"
        raise InputError(f"{folder} {what}", hint="name a new folder; nothing is overwritten")


def write_folder(folder: Path, files: Mapping[str, str]) -> None:
    """Writes the files into a new folder and prints their names; writes nothing if the folder is not empty."""
    refuse_existing(folder)
    make_folder(folder)
    for name, text in files.items():
        write_text(folder / name, text)
        console.say(f"{folder / name}")
