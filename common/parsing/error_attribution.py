"""Whose input is wrong, where one process reads everybody's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from colonnade.common.errors import InputError


@contextmanager
def whose(member: str) -> Iterator[None]:
    """Puts the member's name before what is said of its input, unless it begins with that already."""
    try:
        yield
    except InputError as wrong:
        if str(wrong).startswith((f"{member}:", f"{member} ", f"{member}.", f"parties.{member}")):
            raise
        raise type(wrong)(f"{member}: {wrong}", hint=wrong.hint, told=wrong.told) from wrong
