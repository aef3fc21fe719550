"""Attribution of input errors to a member, where one process reads every member's input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from colonnade.common.errors import InputError


@contextmanager
def whose(member: str) -> Iterator[None]:
    """Prefixes an error with the member's name, unless it begins with it or with a key of the agreed section."""
    try:
        yield
    except InputError as wrong:
        if str(wrong).startswith(("federation.", f"{member}:", f"{member} ", f"{member}.", f"parties.{member}")):
            raise
        raise type(wrong)(f"{member}: {wrong}", hint=wrong.hint, shared=wrong.shared) from wrong
